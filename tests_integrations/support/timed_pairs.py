"""Runs with and without speculation in turns, on a machine whose load changes meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import NamedTuple

import pytest

ROUNDS = 20
OWN_MS = 12.0
"""What a run of two calls may spend on its hooks and on a guess: 6 ms of CPU time, and as much
until its threads and tasks have a processor. A call that waited for its sibling takes 30 ms."""
THINKS_S, ANSWERS, LOOKUP_S = 0.05, 2, 0.05

cases = pytest.mark.parametrize(
    ("guess", "search_s"),
    [("a", 0.09), ("a", 0.03), ("wrong", 0.03)],
    ids=["the longer one", "the shorter one", "none"],
)
"""Two calls in parallel, `search` and `lookup`; the first is guessed. The right guess shortens the
turn if it is of the longer call, and else changes nothing: a call that waited for its sibling would
take 30 ms longer."""


class Took(NamedTuple):
    """What one run took, in ms."""

    wall: float
    cpu: float


def check_pairs(
    ours: Callable[[], object], theirs: Callable[[], object], guess: str, search_s: float
) -> None:
    """Check by how much runs with speculation take longer, in the median of the rounds.

    Each round has one run with it and two without. The difference of those two is how much chance
    is in the median: three of its standard errors are left to it. How long a millisecond of CPU
    time takes on a machine that others use is what the runs without speculation took beside their
    waiting.
    """

    async def ours_once() -> None:
        ours()

    async def theirs_once() -> None:
        theirs()

    check = check_pairs_in_loop(ours_once, theirs_once, guess, search_s)
    with contextlib.suppress(StopIteration):  # nothing above waits for an event loop
        check.send(None)


async def check_pairs_in_loop(
    ours: Callable[[], Awaitable[object]],
    theirs: Callable[[], Awaitable[object]],
    guess: str,
    search_s: float,
    *,
    waits_s: float = ANSWERS * THINKS_S,
) -> None:
    """Check the same of runs in one event loop, which wait `waits_s` beside the two calls."""
    rounds: list[tuple[Took, Took, Took]] = []
    for number in range(ROUNDS + 1):
        runs = [ours, theirs, theirs]
        turn = number % 3  # what comes first meets colder caches
        took = [await _took(run) for run in runs[turn:] + runs[:turn]]
        rounds.append((took[-turn], took[1 - turn], took[2 - turn]))
    del rounds[0]  # it warms up
    _judge(rounds, guess, search_s, (waits_s + max(search_s, LOOKUP_S)) * 1e3)


def _judge(
    rounds: list[tuple[Took, Took, Took]], guess: str, search_s: float, waits_ms: float
) -> None:
    differences = [mine.wall - (one.wall + other.wall) / 2.0 for mine, one, other in rounds]
    noise = [one.wall - other.wall for _, one, other in rounds]
    own_cpu = median(mine.cpu - (one.cpu + other.cpu) / 2.0 for mine, one, other in rounds)
    busy = max(1.0, median((one.wall - waits_ms) / one.cpu for _, one, _ in rounds))
    saves_ms = max(0.0, search_s - LOOKUP_S) * 1e3 if guess == "a" else 0.0
    difference, error = median(differences), _error_of_median(noise)
    print(
        f"\n{difference + saves_ms:+.1f} ms beside {saves_ms:.0f} ms saved, {own_cpu:+.1f} ms CPU; "
        f"equal runs {median(noise):+.1f}, standard error {error:.1f}; CPU {busy:.1f} times slower"
    )
    assert difference + saves_ms < OWN_MS * busy + 3.0 * error


async def _took(run: Callable[[], Awaitable[object]]) -> Took:
    begun, cpu = time.perf_counter(), time.process_time()
    await run()
    return Took((time.perf_counter() - begun) * 1e3, (time.process_time() - cpu) * 1e3)


def _error_of_median(values: list[float]) -> float:
    """Return the standard error of a median, from the median absolute deviation (as if normal)."""
    middle = median(values)
    deviation = 1.4826 * median(abs(value - middle) for value in values)
    return float(1.2533 * deviation / len(values) ** 0.5)
