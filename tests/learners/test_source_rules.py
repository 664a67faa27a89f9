"""The rules of source 000 by hand: numbers worked out on paper, as design §5 reads the rules."""

from __future__ import annotations

import pytest

from learners.ema import Ema
from learners.outcome import Outcome
from learners.policy import State, clamp, with_suggest
from learners.td import Td

HIT, MISS = Outcome(confidence=1.0, correct=True), Outcome(confidence=1.0, correct=False)


def window(state: State, hits: int, size: int = 50) -> State:
    """Return an EMA's state after a window with so many hits, the misses coming first."""
    ema = Ema()
    for n in range(size):
        state = ema.update(state, MISS if n < size - hits else HIT)
    return state


@pytest.mark.parametrize(
    ("threshold", "rate", "hits", "threshold_after", "rate_after"),
    [
        # .8 x .85 + .2 x .92 = .864, the first week of source 000: .014 off, within the dead band
        (0.92, 0.85, 46, 0.92, 0.864),
        # .68 + .2 x .84 = .848: .002 off
        (0.92, 0.85, 42, 0.92, 0.848),
        # .8 x .86 + .2 x 1 = .888, within .80 and .90: .038 off, so -.1 x .038
        (0.92, 0.86, 50, 0.9162, 0.888),
        # .68 + .2 x .66 = .812, within: -.038 off, so +.1 x .038
        (0.92, 0.85, 33, 0.9238, 0.812),
        # .8 x .90 + .2 = .92, above .90: falls by .3 x .07
        (0.92, 0.90, 50, 0.899, 0.92),
        # .8 x .98 + .2 x .9 = .964, above: .3 x .114 = .0342
        (0.80, 0.98, 45, 0.7658, 0.964),
        # .68 + .2 x .4 = .76, below .80: rises by .3 x .09
        (0.90, 0.85, 20, 0.927, 0.76),
        # .68, below: .3 x .17 = .051 is more than the largest step, .05
        (0.80, 0.85, 0, 0.85, 0.68),
        # the same from .92 ends at the upper bound, .95
        (0.92, 0.85, 0, 0.95, 0.68),
        # .8 x 1 + .2 = 1, above: .3 x .15 = .045 from .72 ends at the lower bound, .70
        (0.72, 1.0, 50, 0.70, 1.0),
    ],
)
def test_ema_after_one_window(
    threshold: float, rate: float, hits: int, threshold_after: float, rate_after: float
) -> None:
    state = window((threshold, rate, 0.0, 0.0), hits)
    assert state == pytest.approx((threshold_after, rate_after, 0.0, 0.0))


def test_ema_moves_only_at_the_end_of_a_window() -> None:
    start = Ema().initial()
    assert start == (0.92, 0.85, 0.0, 0.0)
    assert window(start, 30, size=49) == (0.92, 0.85, 49.0, 30.0)


def test_ema_over_two_windows() -> None:
    # .8 x .85 + .2 x .4 = .76: .92 + .027 = .947; then .8 x .76 + .2 = .808: .042 below, + .0042
    assert window(window(Ema().initial(), 20), 50)[:2] == pytest.approx((0.95, 0.808))
    # .947 + .0042 = .9512 is more than the bound; from .80 it is not
    first = window((0.80, 0.85, 0.0, 0.0), 20)
    assert first[0] == pytest.approx(0.827)
    assert window(first, 50)[0] == pytest.approx(0.8312)


def test_ema_counts_only_what_is_at_or_above_its_threshold() -> None:
    ema = Ema()
    state = ema.initial()
    state = ema.update(state, Outcome(confidence=0.92, correct=True))
    state = ema.update(state, Outcome(confidence=0.9199999, correct=True))
    assert state == (0.92, 0.85, 1.0, 1.0)


@pytest.mark.parametrize(
    ("threshold", "value", "outcome", "threshold_after", "value_after"),
    [
        # V = .85 + .1 x .15 = .865; .92 + .05 x (.85 - .865)
        (0.92, 0.85, HIT, 0.91925, 0.865),
        # V = .85 - .1 x .85 = .765; .92 + .05 x .085
        (0.92, 0.85, MISS, 0.92425, 0.765),
        # V = .9 x .765 = .6885; .92425 + .05 x .1615
        (0.92425, 0.765, MISS, 0.932325, 0.6885),
        # V = .5 + .1 x .5 = .55; a hit, but still below the target: .80 + .05 x .3
        (0.80, 0.50, HIT, 0.815, 0.55),
        # bounds .40 to .95
        (0.9499, 0.50, MISS, 0.95, 0.45),
        (0.4001, 1.0, HIT, 0.40, 1.0),
    ],
)
def test_td_after_one_outcome(
    threshold: float, value: float, outcome: Outcome, threshold_after: float, value_after: float
) -> None:
    state = Td().update((threshold, value), outcome)
    assert state == pytest.approx((threshold_after, value_after))


def test_td_learns_at_its_threshold_and_not_below() -> None:
    td = Td()
    assert td.initial() == (0.92, 0.85)
    assert td.update(td.initial(), Outcome(confidence=0.92, correct=True)) != td.initial()
    assert td.update(td.initial(), Outcome(confidence=0.9199999, correct=True)) == td.initial()


@pytest.mark.parametrize(
    ("speculate", "suggest"), [(0.92, 0.70), (0.80, 0.58), (0.62, 0.40), (0.5, 0.40), (0.4, 0.4)]
)
def test_suggest_follows_speculate_down_to_its_floor(speculate: float, suggest: float) -> None:
    assert with_suggest(speculate) == pytest.approx((speculate, suggest))


def test_clamp() -> None:
    assert [clamp(x, 0.4, 0.95) for x in (0.0, 0.4, 0.5, 0.95, 1.0)] == [0.4, 0.4, 0.5, 0.95, 0.95]
