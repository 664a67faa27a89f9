"""When a worker says to a partition what time it is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agents.witnessing import AHEAD_MS, IDLE_MS, LEAST_S, Witness
from processing.clock import TICK_MS, PartitionClock
from processing.rows import PartitionRow

NOW = 1_760_000_100_000
"""A whole tick."""


def core(clock: int | None = NOW, moved: bool = False) -> Any:
    row = PartitionRow() if clock is None else PartitionRow(clock, began=clock)
    return SimpleNamespace(clock=PartitionClock(row), moved=moved, partition=0)


def said(after_s: float = 0.0) -> Witness:
    """Return one that spoke so long before 1,000 s."""
    witness = Witness()
    witness.said(1_000.0 - after_s)
    return witness


@pytest.mark.parametrize(
    ("witness", "what", "now", "due"),
    [
        (Witness, core(None), NOW, True),
        (Witness, core(), NOW + TICK_MS, True),
        (Witness, core(moved=True), NOW + TICK_MS - 1, False),
        (lambda: said(LEAST_S), core(), NOW + TICK_MS, False),
        (lambda: said(LEAST_S), core(moved=True), NOW + TICK_MS, True),
        (lambda: said(LEAST_S - 1), core(moved=True), NOW + TICK_MS, False),
        (lambda: said(LEAST_S - 1), core(None), NOW + TICK_MS, False),
        (lambda: said(LEAST_S), core(), NOW + IDLE_MS - 1, False),
        (lambda: said(LEAST_S), core(), NOW + IDLE_MS, True),
        (lambda: said(LEAST_S), core(moved=True), NOW - TICK_MS, False),
    ],
    ids=[
        "the first thing", "of one taken over", "another one has just said so", "nothing comes",
        "something comes", "not twice in a tick", "nor before the first is heard",
        "not soon where nothing comes", "but once in a while", "not by a clock that is slow",
    ],
)  # fmt: skip
def test_it_says_so_once_a_tick(
    witness: Callable[[], Witness], what: Any, now: int, due: bool
) -> None:
    assert witness().due(what, now, 1_000.0) == due


def test_a_clock_that_is_ahead_of_the_workers_is_warned_of_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    witness = Witness()
    for ahead in (AHEAD_MS, AHEAD_MS + 1, AHEAD_MS + 1):
        assert not witness.due(core(NOW + ahead), NOW, 0.0)
    assert capsys.readouterr().out.count("thresholds.clock.ahead") == 1
