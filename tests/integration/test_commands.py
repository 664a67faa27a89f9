"""Commands on a running system: what they show, and what goes where."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from tests.patience import PATIENCE_S
from topics.catalogue import TOPICS

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]


@pytest.fixture
def events(
    system: System,
    headstart: Any,
    judged: Callable[..., Event],
    tenant: str,
    write_events: Callable[[Sequence[Event]], Path],
) -> list[Event]:
    """Twelve outcomes of this tenant, taken in."""
    made = [judged(tenant, workflow_id=f"w{n % 3}", user_id="u7") for n in range(12)]
    ended = headstart("emit", write_events(made), "--kafka", system.addresses.kafka)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert "12 events sent, 0 lines refused" in ended.stderr
    assert system.drain(PATIENCE_S)
    return made


@pytest.fixture
def run_json(system: System, headstart: Any) -> Callable[..., Event]:
    """Run a command with --json against the system; return the one object on stdout."""

    def run(*arguments: str, code: int = 0, stdin: str | None = None) -> Event:
        ended = headstart(*arguments, "--json", "--data", system.data, stdin=stdin)
        assert ended.returncode == code, ended.stderr
        (line,) = ended.stdout.splitlines()
        answer: Event = json.loads(line)
        return answer

    return run


def test_topics_list(run_json: Callable[..., Event]) -> None:
    listed = {topic["name"]: topic for topic in run_json("topics", "list")["topics"]}
    assert list(listed) == [topic.name for topic in TOPICS]
    assert all(topic["exists"] for topic in listed.values())
    assert listed["headstart.events"]["partitions"] == 4
    assert listed["headstart.dead-letters"]["partitions"] == 1


def test_topics_create_where_they_are(run_json: Callable[..., Event], system: System) -> None:
    assert system.epoch is not None
    assert run_json("topics", "create") == {"created": [], "epoch": system.epoch.number}


def test_topics_describe(run_json: Callable[..., Event], events: list[Event]) -> None:
    described = run_json("topics", "describe", "headstart.events")
    assert described["partitions"] == 4
    assert sum(described["end"].values()) > 0
    assert described["configuration"]["cleanup.policy"] == "delete"


def test_thresholds_list(run_json: Callable[..., Event], events: list[Event], tenant: str) -> None:
    listed = run_json("thresholds", "list", "--tenant", tenant)
    assert listed["total"] == 3
    assert [(each["path"], each["outcomes"]) for each in listed["thresholds"]] == [
        ("workflow_type=refund", 12),
        ("workflow_type=refund/domain=retail", 12),
        ("workflow_type=refund/domain=retail/user_id=u7", 12),
    ]
    limited = run_json("thresholds", "list", "--tenant", tenant, "--limit", "1")
    assert (len(limited["thresholds"]), limited["total"]) == (1, 3)


def test_thresholds_show(
    run_json: Callable[..., Event], events: list[Event], tenant: str, stored: Any
) -> None:
    where = ("--workflow-type", "refund", "--tenant", tenant)
    shown = run_json("thresholds", "show", *where, "--domain", "retail", "--user", "nobody")
    served = stored.served("refund")["workflow_type=refund/domain=retail"]
    assert shown["level"] == "workflow_type=refund/domain=retail"
    assert shown["speculate"] == served["speculate"]
    unknown = run_json("thresholds", "show", "--workflow-type", "unheard of", "--tenant", tenant)
    assert (unknown["level"], unknown["speculate"]) == ("default", 0.92)


def test_memory_query(run_json: Callable[..., Event], events: list[Event], tenant: str) -> None:
    where = ("--workflow-id", "w1", "--tenant", tenant)
    found = run_json("memory", "query", *where)["events"]
    expected = {event["id"]: event for event in events if event["workflow_id"] == "w1"}
    assert {event["id"] for event in found} == set(expected)
    assert [event["timestamp"] for event in found] == sorted(
        (event["timestamp"] for event in found), reverse=True
    )
    for event in found:
        assert event["data"] == expected[event["id"]]["data"]
    assert len(run_json("memory", "query", *where, "--limit", "2")["events"]) == 2
    none = ("--workflow-id", "w1", "--tenant", "nobody")
    assert run_json("memory", "query", *none, code=1) == {"events": []}


def test_events_tail(run_json: Callable[..., Event], events: list[Event], tenant: str) -> None:
    tail = run_json("events", "tail", "--limit", "200")["events"]
    shown = [event for event in tail if tenant in str(event)]  # others write, too
    assert {event["id"] for event in shown} == {event["id"] for event in events}
    assert len(run_json("events", "tail", "--limit", "5")["events"]) == 5


def test_events_tail_follows(
    system: System,
    launch: Callable[..., Any],
    run_json: Callable[..., Event],
    judged: Callable[..., Event],
    events: list[Event],
    tenant: str,
) -> None:
    running = launch("events", "tail", "-f", "--limit", "12", "--data", system.data)
    running.until(events[-1]["id"])
    one = judged(tenant)
    assert run_json("emit", "-", stdin=json.dumps(one))["emitted"] == 1
    lines = running.until(one["id"]).splitlines()
    assert [json.loads(line)["id"] for line in lines].count(one["id"]) == 1


def test_emit_from_stdin_names_the_lines_that_it_refuses(
    headstart: Any, system: System, judged: Callable[..., Event], tenant: str, stored: Any
) -> None:
    good = [judged(tenant), judged(tenant)]
    lines = [
        json.dumps(good[0]),
        "{nope",
        "",
        json.dumps(judged(tenant, confidence=7)),
        "[1]",
        json.dumps(good[1]),
    ]
    ended = headstart("emit", "-", "--json", "--data", system.data, stdin="\n".join(lines))
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == ['{"emitted":2,"refused":3}']
    messages = ended.stderr.splitlines()
    assert [line.split(":")[:2] for line in messages] == [["-", "2"], ["-", "4"], ["-", "5"]]
    assert "confidence: must be at least 0 and at most 1, not 7" in messages[1]
    assert system.drain(PATIENCE_S)
    assert stored.ids() == sorted(event["id"] for event in good)


def test_tables_for_people(
    headstart: Any, system: System, events: list[Event], tenant: str
) -> None:
    for arguments in (
        ("topics", "list"),
        ("topics", "describe", "headstart.events"),
        ("thresholds", "list", "--tenant", tenant),
        ("thresholds", "show", "--workflow-type", "refund", "--tenant", tenant),
        ("memory", "query", "--workflow-id", "w1", "--tenant", tenant),
        ("events", "tail"),
    ):
        ended = headstart(*arguments, "--data", system.data)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert len(ended.stdout.splitlines()) >= 3
    one = headstart("topics", "create", "--data", system.data)
    assert (one.returncode, one.stdout) == (0, "")
    assert "all topics exist" in one.stderr


def test_thresholds_export(
    system: System,
    headstart: Any,
    run_json: Callable[..., Event],
    events: list[Event],
    tenant: str,
    stored: Any,
    tmp_path: Path,
) -> None:
    file = tmp_path / "learned.jsonl"
    done = run_json("thresholds", "export", str(file), "--tenant", tenant)
    assert done == {"file": str(file), "contexts": 3}
    header, *contexts = [json.loads(line) for line in file.read_text().splitlines()]
    assert (header["format"], header["version"], header["contexts"]) == ("headstart-learned", 1, 3)
    served = stored.served("refund")
    assert [each["path"] for each in contexts] == sorted(served)
    for each in contexts:
        value = served[each["path"]]
        assert {name: each[name] for name in ("speculate", "suggest", "outcomes", "epoch")} == {
            name: value[name] for name in ("speculate", "suggest", "outcomes", "epoch")
        }
        assert each["state"]
        assert each["learner"] == value["learner"]
    learned = file.read_text()
    given = ("thresholds", "export", str(file), "--tenant", tenant, "--workflow-type", "order")
    none = headstart(*given, "--data", system.data)
    assert (none.returncode, file.read_text()) == (1, learned)
    assert "error: no context matches" in none.stderr
