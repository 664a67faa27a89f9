"""What guessed calls saved of a turn's duration. Pure.

A turn lasts from the moment its calls are known until the last one has ended. A guessed call that
ran before saves only what it shortens the turn by: of two calls in parallel, the shorter one saves
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from math import factorial
from typing import Final

EXACT_HITS: Final = 8
"""Most hits of one turn whose shares are computed exactly; further ones get a lower bound."""


def turn_ms(
    durations: Mapping[str, float], head_starts: Mapping[str, float], *, parallel: bool
) -> float:
    """Return the duration of a turn in ms.

    Args:
        durations: Of each call in ms, by its id, in the order in which they are made.
        head_starts: Of the calls that were started early, the ms that they had run when the calls
            of the turn became known.
        parallel: The executor makes the calls at once; otherwise one after another.
    """
    if parallel:
        rest = (ms - head_starts.get(call, 0.0) for call, ms in durations.items())
        return max(0.0, max(rest, default=0.0))
    elapsed = 0.0
    for call, ms in durations.items():
        if call in head_starts:  # it also runs during the calls before it
            elapsed += max(0.0, ms - head_starts[call] - elapsed)
        else:
            elapsed += ms
    return elapsed


def saved_ms(
    durations: Mapping[str, float], head_starts: Mapping[str, float], *, parallel: bool = True
) -> dict[str, float]:
    """Return what each call that was started early saved of the turn, in ms.

    The shares sum to what all of them saved. One hit i among calls of durations L in parallel
    saves max(L) - max(max of the others, L_i - its head start). Several share what they save
    together by the Shapley value: the mean, over all orders of the hits, of what each saves in
    addition to those before it (L. S. Shapley, A Value for n-Person Games, 1953).
    """
    hits = [call for call in durations if call in head_starts]
    if len(hits) > EXACT_HITS:
        hits = hits[:EXACT_HITS]
    alone = turn_ms(durations, {}, parallel=parallel)

    def saved(some: Iterable[str]) -> float:
        started = {call: head_starts[call] for call in some}
        return alone - turn_ms(durations, started, parallel=parallel)

    return {hit: _share(hit, [each for each in hits if each != hit], saved) for hit in hits}


def _share(hit: str, others: list[str], saved: Callable[[Iterable[str]], float]) -> float:
    size = len(others) + 1
    total = 0.0
    for count in range(size):
        weight = factorial(count) * factorial(size - count - 1) / factorial(size)
        for some in combinations(others, count):
            total += weight * (saved((*some, hit)) - saved(some))
    return max(0.0, total)
