"""Snapshots that no worker has served, and executors that are many or forged."""

from __future__ import annotations

import copy
import json
import math
import random
import zlib
from functools import lru_cache
from typing import Any

import pytest

from headstart.prediction.interface import ToolCall
from headstart.prediction.shared import covered_sequences
from headstart.prediction.shared.covered_sequences import (
    MOST_EXECUTORS,
    MOST_SERVED,
    CoveredSequences,
)
from headstart.prediction.shared.decision_events import decision_event
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.shared_predictor import SharedCallPredictor
from headstart.prediction.shared.snapshot import read_snapshot
from tests.client.prediction.fleet_events import Fleet
from tests.client.prediction.synthetic_runs import play, support_runs

FOREIGN: list[Any] = [
    -1, 0, 1, 0.5, math.nan, math.inf, -math.inf, 1e300, -1e9, 2**53, 2**70, "", "x", "00" * 8,
    None, True, [], [1], {}, {"a": 1}, 60_000 << 10,
]  # fmt: skip


@lru_cache(maxsize=1)
def learned() -> tuple[bytes, dict[str, Any]]:
    """Return the header and the state of a snapshot."""
    fleet = Fleet(2)
    for i, steps in enumerate(support_runs(40)):
        play(fleet.executors[i % 2].run(user_id=f"u{i % 6}"), steps)
        if i % 6 == 5:
            fleet.share()
    head, _, text = fleet.model.snapshot().partition(b"\n")
    return head, json.loads(zlib.decompress(text))


def snapshot_of(state: dict[str, Any]) -> bytes:
    return learned()[0] + b"\n" + zlib.compress(json.dumps(state).encode(), 1)


def change(node: Any, chance: random.Random) -> None:
    """Change something at any depth."""
    while True:
        place = chance.choice([*node] if isinstance(node, dict) else range(len(node)))
        child = node[place]
        if not child or not isinstance(child, dict | list) or chance.random() < 0.07:
            break
        node = child
    kind = chance.random()
    if kind < 0.2 and isinstance(node, list):
        del node[place]
    elif kind < 0.3 and isinstance(node, list):
        node.insert(place, child)
    elif kind < 0.6 and type(child) in (int, float):
        node[place] = chance.choice((-child, child * 1_000, child + 1, child * 1.5))
    elif kind < 0.6 and child and isinstance(child, str):
        at = chance.randrange(len(child))
        node[place] = child[:at] + chance.choice("0127af!") + child[at + 1 :]
    else:
        node[place] = chance.choice(FOREIGN)


@pytest.mark.parametrize("seed", range(60))
def test_a_changed_snapshot_is_refused_or_guesses_go_on(seed: int) -> None:
    chance, reported = random.Random(seed), list[str]()
    state = copy.deepcopy(learned()[1])
    for _ in range(chance.choice((1, 1, 3))):
        change(state, chance)
    executor = SharedCallPredictor(lambda event: None, report=reported.append)
    if not executor.load(snapshot_of(state)):
        assert "damaged" in reported[0] or "hash_key" in reported[0]
    for step in next(support_runs(1, seed)):
        run = executor.run(user_id="u1")
        run.user(step.text or "refund")
        assert all(0.0 <= each.confidence <= 1.0 for each in run.guess(5))
        run.calls([ToolCall(step.tool or "find", step.arguments)])


@pytest.mark.parametrize(
    ("member", "place", "value"),
    [
        ("tools", 1, math.nan), ("tools", 1, math.inf), ("tools", 1, 1e30), ("tools", 3, [1, 2]),
        ("arguments", 2, -math.inf), ("ranking", 0, math.nan), ("ranking", 4, 1.5),
        ("memory", 0, -1),
    ],
)  # fmt: skip
def test_a_number_that_learning_cannot_give_is_refused(
    member: str, place: int, value: object
) -> None:
    state = copy.deepcopy(learned()[1])
    if isinstance(state[member][place], list):
        state[member][place][0] = value
    else:
        state[member][place] = value
    assert not SharedCallPredictor(lambda event: None, report=str).load(snapshot_of(state))
    assert SharedCallPredictor(lambda event: None).load(snapshot_of(learned()[1]))


def test_a_small_snapshot_of_many_bytes_is_refused() -> None:
    data = learned()[0] + b"\n" + zlib.compress(b" " * (9 << 20) + b"{}")
    assert len(data) < 100_000
    assert not SharedCallPredictor(lambda event: None, report=str).load(data)


def served(count: int) -> tuple[FleetModel, SharedCallPredictor]:
    """Return a model that has learned from one executor and then from `count` others."""
    fleet = Fleet()
    executor = fleet.executors[0]
    for steps in support_runs(3):
        play(executor.run(), steps)
    content = fleet.events[0]["content"]
    record = bytes.fromhex(content["record"])
    for number in range(count):
        event = decision_event(f"e{number:016x}", 1, int(content["check"][1:], 16), 1, record)
        assert fleet.model.apply(event)
    return fleet.model, executor


@pytest.mark.parametrize("count", [MOST_SERVED - 1, MOST_SERVED, MOST_EXECUTORS + 1])
def test_decisions_are_counted_once_however_many_executors_there_are(count: int) -> None:
    model, executor = served(count)
    assert len(read_snapshot(model.snapshot()).covered) <= MOST_SERVED
    assert executor.load(model.snapshot())
    assert executor._predictor.model.tools.escapes == model.model.tools.escapes
    assert executor._predictor.model.tools.weights == model.model.tools.weights
    run = executor.run()
    run.calls([ToolCall("find", {})])
    assert [each.sequence for each in executor._own.kept] == [executor._own.sequence]


def test_evicted_executors_are_counted_and_part_of_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(covered_sequences, "MOST_EXECUTORS", 32)
    covered = CoveredSequences()
    for number in range(33):
        covered.cover(f"e{number}", 7)
    assert covered.evicted == 3
    assert not covered.covers("e0", 7)
    assert covered.covers("e3", 7)
    again = CoveredSequences()
    again.read(json.loads(json.dumps(covered.parts())))
    assert (again.last, again.evicted) == (covered.last, 3)
    assert not covered.served()[1]


def test_a_forged_sequence_silences_an_executor_only_until_it_loads() -> None:
    fleet, reported = Fleet(), list[str]()
    executor = SharedCallPredictor(fleet.emit, report=reported.append)
    run = executor.run()
    run.calls([ToolCall("find", {})])
    content, name = fleet.events[0]["content"], executor.executor
    assert fleet.model.apply({**fleet.events[0], "content": {**content, "sequence": (1 << 53) - 1}})
    run.calls([ToolCall("find", {})])
    assert fleet.model.version == 2
    assert executor.load(fleet.model.snapshot())
    assert "another process" in reported[0]
    assert executor.executor != name
    run.calls([ToolCall("find", {})])
    assert fleet.model.version == 3
