"""From emit() in two processes to Postgres, Redis, the compacted topic and the history."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from headstart import Thresholds
from headstart.events.schema import new_id
from headstart.keys import DEFAULT_PATH, event_key, threshold_key
from learners.outcome import Outcome
from learners.policy import State
from learners.registry import DEFAULT, POLICIES
from processing.records.partitioner import partition_for
from tests.patience import PATIENCE_S
from tests.secured import reading
from topics.catalogue import EVENTS, THRESHOLDS

pytestmark = pytest.mark.integration

Event = dict[str, Any]
WORKFLOWS = ("refund", "booking", "shared")

EMITTER = """
import json, sys
import headstart
kafka, path = sys.argv[1:]
with headstart.Emitter(kafka) as emitter:
    for line in open(path):
        emitter.emit(json.loads(line))
    emitter.flush(300)
"""


def predictions(tenant: str, process: int, count: int) -> list[Event]:
    """Starts and their completions, of which some are wrong; own and shared contexts."""
    draw = random.Random(f"{process}")
    events = []
    for number in range(count):
        workflow_type = draw.choice((WORKFLOWS[process], "shared"))
        place = {
            "tenant": tenant,
            "workflow_type": workflow_type,
            "workflow_id": f"{process}-{number // 10}",
            "task_id": str(number),
            "user_id": draw.choice(("u1", "u2")),
        }
        context = {"context": {"domain": draw.choice(("retail", "travel"))}}
        confidence = draw.choice((0.5, 0.93, 0.97, 0.99))
        guess = {"prediction": {"tool_id": "search", "speculated": confidence > 0.92}}
        tool = "search" if draw.random() < 0.9 else "book"
        events += [
            {"event_type": "speculation_start", "confidence": confidence, **place}
            | {"data": {**context, **guess}},
            {"event_type": "task_complete", "tool_id": tool, **place, "data": context},
        ]
    return [{"id": new_id(), **event} for event in events]


def emit_from_processes(kafka: str, files: Sequence[Path]) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", EMITTER, kafka, str(path)]) for path in files
    ]
    assert [process.wait(PATIENCE_S) for process in started] == [0] * len(files)


def replay(
    events: Sequence[Event], paths_of: Callable[[Event], list[str]]
) -> tuple[Counter[str], dict[str, float]]:
    """Join and learn again, plainly: outcomes and threshold by path."""
    policy = POLICIES[DEFAULT]
    states: dict[str, State] = {}
    counted: Counter[str] = Counter()
    starts: dict[tuple[str, str], Event] = {}
    for event in events:
        task = event["workflow_id"], event["task_id"]
        if event["event_type"] == "speculation_start":
            starts[task] = event
            continue
        start = starts.pop(task)
        correct = event["tool_id"] == start["data"]["prediction"]["tool_id"]
        outcome = Outcome(confidence=start["confidence"], correct=correct)
        chain: list[State] = []
        for path in paths_of(start):
            counted[path] += 1
            new = policy.begin(chain[-1]) if chain else policy.initial()
            chain.append(states.get(path, new))
        states.update(zip(paths_of(start), policy.learn(chain, outcome), strict=True))
    return counted, {path: policy.thresholds(state).speculate for path, state in states.items()}


def first_sent(records: Sequence[Any]) -> list[Event]:
    """Return each event once, where it first stands on the log.

    A process that ends leaves what it had under way for the other one to its successor, which sends
    it again: the log may hold it twice, and the first one counts.
    """
    sent: dict[str, Event] = {}
    for record in records:
        for event in json.loads(record.value):
            sent.setdefault(event["id"], event)
    return list(sent.values())


def test_every_event_once_and_the_thresholds_of_a_plain_replay(
    system: System,
    stored: Any,
    tenant: str,
    write_events: Callable[[Sequence[Event]], Path],
    paths_of: Callable[[Event], list[str]],
    read_topic: Callable[[str], list[Any]],
) -> None:
    kafka = system.addresses.kafka
    emitted = [predictions(tenant, process, 400) for process in (0, 1)]
    for wave in (slice(400), slice(400, None)):
        emit_from_processes(kafka, [write_events(events[wave]) for events in emitted])
        assert system.drain(PATIENCE_S)

    ids = sorted(event["id"] for events in emitted for event in events)
    assert stored.ids() == ids

    records = [r for r in read_topic(EVENTS.name) if r.key.startswith(tenant.encode())]
    events = first_sent(records)
    assert sorted(event["id"] for event in events) == ids
    for record in records:
        workflow_type = json.loads(record.value)[0]["workflow_type"]
        assert record.key == event_key(tenant, workflow_type)
        assert record.partition == partition_for(tenant, workflow_type, 4)

    counted, learned = replay(events, paths_of)
    assert len(counted) == len(WORKFLOWS) * (1 + 2 + 4)
    served = stored.served(*WORKFLOWS)
    assert {path: value["outcomes"] for path, value in served.items()} == counted
    assert {path: value["speculate"] for path, value in served.items()} == learned
    assert len(set(learned.values())) > 10, "too little was learned to compare"

    default = threshold_key(tenant, DEFAULT_PATH)  # learned every so often: here or not yet
    announced = [
        record
        for record in read_topic(THRESHOLDS.name)
        if record.key.startswith(tenant.encode()) and record.key != default
    ]
    newest = {record.key: json.loads(record.value) for record in announced}
    assert {key: value["speculate"] for key, value in newest.items()} == {
        threshold_key(tenant, path): threshold for path, threshold in learned.items()
    }
    assert all(value["epoch"] == system.epoch.number for value in newest.values())

    history = stored.query(
        'SELECT path, epoch, "offset", speculate FROM threshold_history'
        " WHERE tenant = %s AND path <> %s",
        tenant,
        DEFAULT_PATH,
    )
    versions = [json.loads(record.value) for record in announced]
    assert sorted(history) == sorted(
        (v["path"], v["epoch"], v["offset"], v["speculate"]) for v in versions
    )
    assert len(history) > len(learned), "each wave moved most of them"

    with Thresholds(reading(system.addresses), timeout_s=30.0) as reader:
        finest = "workflow_type=shared/domain=travel/user_id=u2"
        answer = reader.get(tenant=tenant, workflow_type="shared", domain="travel", user_id="u2")
        assert (answer.level, answer.speculate) == (finest, learned[finest])
        coarse = reader.get(tenant=tenant, workflow_type="shared", domain="elsewhere")
        assert coarse.level == "workflow_type=shared"
        assert reader.get(tenant=tenant, workflow_type="never seen").level == DEFAULT_PATH
