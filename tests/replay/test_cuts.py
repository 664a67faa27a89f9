"""Where batches of a log are cut changes nothing of what is found in it."""

from __future__ import annotations

from typing import Any

import pytest

from learners.registry import policy
from replay.joining import Filter, Joiner, Notes
from replay.judge import Judge
from replay.scales import Scales
from tests.processing.building import EPOCH, NOW, event, fetch, judged, start
from tests.replay.test_engine import Told

HOUR = 3_600_000


def walked(log: list[dict[str, Any]], cut: int) -> tuple[dict[str, list[float]], Notes]:
    """Return the thresholds over events that come in two batches, and what was noted."""
    told, notes = Told(), Notes()
    judge = Judge({name: policy(name) for name in ("hops", "td")}, told=told)
    joiner = Joiner(0, 1, EPOCH, judge, ("domain",), Filter(), Scales())
    for begin, piece in ((0, log[:cut]), (cut, log[cut:])):
        if piece:
            joiner.take(fetch(*piece, offsets=range(begin, begin + len(piece))), notes)
    joiner.end(notes)
    return told.thresholds, notes


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
