"""One history whose results were recorded: whatever is done for speed, they stay what they are.

The policies here compute with nothing but + - * /, so that their bits are the same everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import orjson
import pytest

from learners.registry import policy
from processing.config import LearningConfig
from replay.engine.split_sums import Split
from replay.execution.runner import Backtest, named, run_backtest
from replay.rebuild.relearn import COUNTED, relearn
from replay.sources.base import ReadOptions
from replay.sources.files import EventFile

POLICIES: Final = ("fixed", "never", "ema", "td", "sliding", "aci", "pid", "gradient")
SPOOL: Final = "5f3759df-0000-4000-8000-000000000000"


def events() -> Iterator[dict[str, Any]]:
    """Yield completions, some of them asked about long before, some sent twice, some refused."""
    draw, waiting, now = Random(11), list[dict[str, Any]](), 1_700_000_000_000
    for number in range(4_000):
        now += draw.randrange(2_000)
        event = {
            "id": f"{number:08x}-0000-4000-8000-000000000000",
            "event_type": "task_complete",
            "tenant": draw.choice(["one", "other"]),
            "workflow_type": draw.choice(["refund", "search", "book"]),
            "workflow_id": f"run-{number // 7}",
            "task_id": str(number),
            "timestamp": now,
            "tool_id": draw.choice(["a", "b"]),
            "user_id": f"u{draw.randrange(90)}",
        }
        where = {"domain": draw.choice(["retail", "airline", None])}
        # Better and worse times, so that there are drifts to find.
        confidence = draw.random()
        right = draw.random() < (confidence if number % 1_500 < 900 else 0.3)
        result = {"gain_ms": 100.0 * draw.randrange(9), "cost_ms": draw.choice([0.0, 250.0, 901.7])}
        prediction = {"was_correct": right, "speculated": draw.random() < 0.5, "tool_id": "a"}
        if draw.random() < 0.5:
            started = {"context": where, "prediction": {**prediction, "was_correct": None}}
            yield event | {"event_type": "speculation_start", "confidence": confidence,
                           "id": f"{number:08x}-0000-4000-9000-000000000000",
                           "data": started}  # fmt: skip
            waiting.append(event | {"data": {"prediction": prediction, "result": result}})
        else:
            data = {"context": where, "prediction": prediction, "result": result}
            whole = event | {"confidence": confidence, "data": data, "origin": [SPOOL, number]}
            yield from [whole] * draw.choice([1, 1, 1, 1, 2])
        if number % 500 == 0:
            yield event | {"confidence": 7}
        while waiting and draw.random() < 0.4:
            late = waiting.pop(draw.randrange(len(waiting)))
            yield late | {"timestamp": now, "task_id": late["task_id"] if number % 9 else "lost"}


@pytest.fixture
def history(tmp_path: Path) -> EventFile:
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in events()))
    return EventFile(file, ReadOptions())


def digest(found: list[Any]) -> str:
    """Return a hash of every bit of what was found, but for how long it took."""
    for unit in found:
        unit.seconds, unit.notes.named = 0.0, []
        for part in unit.parts:
            for arm in part.arms.values():
                arm.nanoseconds = 0
    units = msgspec.msgpack.decode(msgspec.msgpack.encode(found))
    for unit in units:  # a count that is newer than what was recorded
        assert unit["notes"].pop("not_guessed") == 0
    return hashlib.sha256(msgspec.msgpack.encode(units)).hexdigest()[:16]


@pytest.mark.parametrize(
    ("more", "recorded"),
    [
        ({}, "f9b41cf3c6eca14b"),
        ({"split": Split(number=1_700)}, "679e4169754a367e"),
        ({"suggest": True}, "c9f481de434fae41"),
        ({"most_contexts": 100}, "9b0da513098107d6"),
    ],
)
def test_results_are_what_they_were(history: EventFile, more: Any, recorded: str) -> None:
    found = run_backtest(Backtest(history, named(POLICIES), **more), lambda _: None, processes=1)
    notes = found[0].notes
    assert min(notes.duplicates, notes.unmatched, notes.unresolved) > 10
    assert notes.refused == 8
    assert found[0].parts[-1].drifts
    assert digest(found) == recorded


def test_thresholds_are_what_they_were(history: EventFile, tmp_path: Path) -> None:
    thresholds = tmp_path / "thresholds"
    run_backtest(Backtest(history, named(POLICIES), thresholds_out=thresholds), lambda _: None)
    lines = b"".join((thresholds / f"{name}.jsonl").read_bytes() for name in POLICIES)
    assert hashlib.sha256(lines).hexdigest()[:16] == "87f0de1d4a006619"


def test_relearning_counts_starts_and_completions_as_a_backtest_does(history: EventFile) -> None:
    (unit,) = run_backtest(Backtest(history, named(["td"])), lambda _: None, processes=1)
    _, notes = relearn(history, LearningConfig(policy("td")), lambda _: None, processes=1)
    for count in COUNTED:
        if count != "named":
            assert getattr(notes, count) == getattr(unit.notes, count), count
    assert notes.unresolved > 10
