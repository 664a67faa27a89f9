"""A user sees, corrects, exports and deletes memories by the commands, over a running system."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from tests.integration.agent_runs import agent_run
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]


@pytest.fixture
def memory(system: System, headstart: Any, tenant: str) -> Callable[..., Any]:
    """Run `headstart memory ...` of user u1 and return what it printed as JSON."""
    kafka = ("--kafka", system.addresses.kafka)
    postgres = ("--postgres", system.addresses.postgres)

    def run(*words: str, code: int = 0, user: str = "u1") -> Any:
        services = postgres if words[0] in ("list", "profile", "context") else (*kafka, *postgres)
        given = ("--tenant", tenant, "--user", user, *services, "--json")
        ended = headstart("memory", *words, *given)
        assert ended.returncode == code, ended.stderr
        return json.loads(ended.stdout) if ended.stdout else ended.stderr

    return run


@pytest.fixture
def emitted(
    system: System, headstart: Any, write_events: Callable[[Sequence[Event]], Path], tenant: str,
    stored: Any,
) -> None:  # fmt: skip
    events = [
        *agent_run(tenant, "u1", "mine-1", "cancel my order", agent_id="a"),
        *agent_run(tenant, "u1", "mine-2", "cancel my order of tea", agent_id="b"),
        *agent_run(tenant, "u2", "other", "cancel her order", agent_id="a"),
    ]
    sent = headstart("emit", write_events(events), "--kafka", system.addresses.kafka)
    assert sent.returncode == 0, sent.stderr
    assert system.drain(PATIENCE_S)
    count = "SELECT count(*) FROM episodes WHERE tenant = %s"
    stored.until(lambda: stored.query(count, stored.tenant) == [(3,)])


@pytest.mark.usefixtures("emitted")
def test_see_correct_and_delete(
    system: System, headstart: Any, memory: Any, tenant: str, tmp_path: Path
) -> None:
    listed = memory("list")["memories"]
    assert {each["workflow_id"] for each in listed} == {"mine-1", "mine-2"}
    assert memory("list", user="nobody", code=1) == {"memories": []}

    fixed = memory("correct", "mine-1", "--query", "return my order", "--outcome", "failure")
    assert fixed["applied"]
    (one,) = [each for each in memory("list")["memories"] if each["workflow_id"] == "mine-1"]
    assert (one["query"], one["outcome"], one["reward"]) == ("return my order", "failure", 0.0)
    assert "has no memory" in memory("correct", "other", "--query", "mine now", code=1)

    file = tmp_path / "u1.jsonl"
    postgres = ("--postgres", system.addresses.postgres)
    sent = headstart("memory", "export", file, "--tenant", tenant, "--user", "u1", *postgres)
    assert sent.returncode == 0, sent.stderr
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    kinds = [each["kind"] for each in lines]
    assert (kinds.count("event"), kinds.count("episode")) == (7, 2)
    assert kinds.count("threshold") > 0
    assert "her order" not in file.read_text()

    assert memory("delete", "mine-1", "--yes")["applied"]
    assert [each["workflow_id"] for each in memory("list")["memories"]] == ["mine-2"]
    assert "has no memory" in memory("delete", "mine-1", "--yes", code=1)
    everything = memory("delete", "--all", "--yes")
    assert everything["subject"] == {"user_id": "u1"}
    assert memory("list", code=1) == {"memories": []}
    assert len(memory("list", user="u2")["memories"]) == 1
    gone = headstart("memory", "export", file, "--tenant", tenant, "--user", "u1", *postgres)
    assert (gone.returncode, "nothing is stored of user 'u1'" in gone.stderr) == (1, True)


@pytest.mark.usefixtures("emitted")
def test_a_user_switches_the_memory_off_and_shares_it(memory: Any) -> None:
    def cases(agent: str, code: int = 0) -> Any:
        return memory("context", "cancel my order", "--agent", agent, code=code)

    shown = memory("profile", "show")
    assert (shown["stored"], shown["profile"]["shared"]) == ([], False)
    assert cases("a")["text"].count("Case ") == 1
    alone = sum(each["support"] for each in cases("a")["cases"])
    memory("profile", "set", "--agent", "a", "--share")
    assert sum(each["support"] for each in cases("a")["cases"]) == alone + 1
    off = memory("profile", "set", "--off", "--days", "30")
    assert (off["profile"]["enabled"], off["profile"]["window_days"]) == (False, 30)
    said = cases("a", code=1)
    assert (said["text"], "is off" in said["reason"]) == ("", True)
    assert memory("profile", "set", "--on", "--days", "0")["profile"]["window_days"] is None
    assert cases("a")["text"] != ""
