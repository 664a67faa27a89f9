"""Where batches of a log are cut changes nothing of what is found in it."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from learners.registry import policy
from replay.engine.engine import BacktestEngine
from replay.engine.join import Filter, PredictionJoiner
from replay.predictions.notes import Notes
from replay.predictions.what_if import PayoffScales
from replay.results.unit_results import unit_sums
from tests.processing.building import EPOCH, NOW, event, fetch, judged, start
from tests.replay.arms import RecordedAnswers

HOUR = 3_600_000


def walked(log: list[dict[str, Any]], cut: int) -> tuple[dict[str, list[float]], Notes]:
    """Return the thresholds over events that come in two batches, and what was noted."""
    recorded, notes = RecordedAnswers(), Notes()
    judge = BacktestEngine({name: policy(name) for name in ("hops", "td")}, observer=recorded)
    joiner = PredictionJoiner(0, 1, EPOCH, judge, ("domain",), Filter(), PayoffScales())
    for begin, piece in ((0, log[:cut]), (cut, log[cut:])):
        if piece:
            joiner.take(fetch(*piece, offsets=range(begin, begin + len(piece))), notes)
    joiner.end(notes)
    return recorded.thresholds, notes


@pytest.mark.parametrize("late", [0, 2 * HOUR, 100 * HOUR])
def test_where_a_batch_ends_is_nothing_to_a_backtest(late: int) -> None:
    """Also where predictions come long after newer ones: they wait as the agent has them wait."""
    then = NOW - late
    log = [judged(timestamp=NOW)]
    for n in range(12):
        log.append(start(0.7, task_id=f"t{n}", timestamp=then + n))
        log.append(judged(n % 3 > 0, timestamp=then + n))
        if n > 2:
            tool = "search" if n % 2 else "book"
            log.append(event(task_id=f"t{n - 3}", tool_id=tool, timestamp=then + n))
    whole = walked(log, len(log))
    assert len(whole[0]["td"]) == 1 + 12 + 9
    for cut in range(len(log)):
        assert walked(log, cut)[0] == whole[0], cut


def summed(log: list[Any], *, headers: bool, apart: bool) -> tuple[bytes, Notes]:
    """Return what is summed up; with headers every event goes the core's way."""
    notes = Notes()
    judge = BacktestEngine(
        {name: policy(name) for name in ("hops", "td", "sliding")},
        live=True,
        observer=RecordedAnswers() if apart else None,
    )
    joiner = PredictionJoiner(
        0, 1, EPOCH, judge, ("domain", "user_id"), Filter(workflow_type="refund"), PayoffScales()
    )
    batch = fetch(*log)
    if headers:
        batch.headers.update({offset: [("note", b"x")] for offset in batch.offsets})
    joiner.take(batch, notes)
    joiner.end(notes)
    return msgspec.json.encode(unit_sums(0, judge, notes, 0.0)), notes


def test_completions_with_all_fields_count_as_in_the_core() -> None:
    """Among starts, duplicates, refused ones, other types, holes and what comes late."""
    draw, log = Random(3), list[Any]()
    for n in range(1_500):
        fields = {
            "timestamp": NOW - 10_000 * (1_500 - n) - draw.choice((0, 0, 2 * HOUR)),
            "workflow_id": f"w{n % 2}",
            "workflow_type": draw.choice(("refund", "refund", "refund", "other")),
            **draw.choice(({}, {"user_id": "u"}, {"user_id": f"v{n // 90}"})),
        }
        once = {**fields, "origin": [f"spool{n % 3}", max(0, n - draw.choice((0, 0, 0, 9)))]}
        sure, tool = round(draw.random(), 2), draw.choice(("search", "book"))
        kinds = (
            judged(draw.random() < sure, sure, task_id=f"t{n - draw.randrange(20)}", **once),
            [judged(draw.random() < 0.5, sure, **fields)] * 2,
            judged(data={"prediction": {"was_correct": True}}, **once),
            start(sure, task_id=f"t{n}", **once),
            event(task_id=f"t{n - draw.randrange(20)}", tool_id=tool, **once),
            event("user_feedback", **once),
            b"{broken",
        )
        log.append(draw.choice(kinds))
    together = summed(log, headers=False, apart=False)
    notes = together[1]
    assert min(notes.predictions, notes.duplicates, notes.filtered, notes.refused) > 100
    assert together == summed(log, headers=False, apart=True)
    assert together == summed(log, headers=True, apart=False)
