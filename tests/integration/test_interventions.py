"""What was learned is exported, forgotten and given back, and a tenant's default is served."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]


def contexts(ended: Any) -> list[dict[str, Any]]:
    """Return the listed contexts without `latest`, which moves while a clock is behind."""
    listed = json.loads(ended.stdout)["contexts"]
    return [{name: value for name, value in each.items() if name != "latest"} for each in listed]


def test_learned_state_is_reset_and_imported_and_a_replay_agrees(
    system: System,
    headstart: Any,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    stored: Any,
    tenant: str,
    tmp_path: Path,
) -> None:
    at = system.addresses
    kafka = ("--kafka", at.kafka)
    events = [judged(tenant, "refund") for _ in range(30)]
    assert headstart("emit", write_events(events), *kafka).returncode == 0
    stored.until(lambda: stored.counted("refund").get("workflow_type=refund") == 30)
    assert system.drain(PATIENCE_S)
    before = stored.served("refund")
    listing = ("contexts", "--tenant", tenant, "--redis", at.redis, "--json")
    listed = contexts(headstart(*listing))
    file = str(tmp_path / "learned.jsonl")
    exported = headstart("thresholds", "export", file, "--tenant", tenant, *kafka, "--json")
    assert exported.returncode == 0, exported.stderr
    assert json.loads(exported.stdout)["contexts"] == 2, exported.stderr

    assert headstart("emit", write_events([judged(tenant, "refund")]), *kafka).returncode == 0
    stored.until(lambda: stored.counted("refund").get("workflow_type=refund") == 31)
    assert system.drain(PATIENCE_S)
    tried = headstart("thresholds", "import", file, *kafka, "--dry-run", "--json")
    assert json.loads(tried.stdout)["newer"] == {"contexts": 2, "outcomes": 1}
    assert "overwrites newer learning of 2 contexts: from 1 outcome" in tried.stderr

    later = stored.served("refund")
    mine = ("thresholds", "reset", "*", "--tenant", tenant, *kafka)
    tried = headstart(*mine, "--dry-run", "--json")
    assert json.loads(tried.stdout)["contexts"] == 2, tried.stderr
    assert stored.served("refund") == later
    assert headstart(*mine, "--yes", "--json").returncode == 0
    stored.until(lambda: all(each.get("deleted") for each in stored.served("refund").values()))

    back = headstart("thresholds", "import", file, *kafka, "--yes", "--json")
    assert json.loads(back.stdout)["contexts"] == 2, back.stderr
    stored.until(lambda: not any(e.get("deleted") for e in stored.served("refund").values()))
    for path, value in stored.served("refund").items():
        assert value["speculate"] == before[path]["speculate"]
        assert value["outcomes"] == 30
    assert contexts(headstart(*listing)) == listed, "nothing of a context is lost"

    # Sent again only where its threshold moves: it may have been merged from the 31 outcomes.
    stored.until(lambda: stored.served("").get("default", {}).get("outcomes") in (30, 31))
    assert system.drain(PATIENCE_S)
    places = ("--postgres", at.postgres, "--redis", at.redis)
    verified = headstart("verify", *kafka, *places, "--json")
    assert json.loads(verified.stdout)["counts"] == {}, verified.stderr
