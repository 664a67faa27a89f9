"""The rules of the sources by hand: numbers worked out on paper."""

from __future__ import annotations

import pytest

from learners.ema import Ema
from learners.gradient_pid import Gradient, Pid
from learners.outcome import Outcome
from learners.policy import Policy, State, ThresholdPair, clamp
from learners.prioritised_td import Prioritised
from learners.registry import POLICIES
from learners.sliding_window import Sliding
from learners.td import Td
from tests.learners.worlds import run

HIT, MISS = Outcome(confidence=1.0, correct=True), Outcome(confidence=1.0, correct=False)


def window(state: State, hits: int, size: int = 50) -> State:
    """Return an EMA's state after a window with so many hits, the misses coming first."""
    ema = Ema()
    state += ema.initial()[4:]
    for n in range(size):
        state = ema.update(state, MISS if n < size - hits else HIT)
    return state[:4]


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
    start = Ema().initial()[:4]
    assert start == (0.92, 0.85, 0.0, 0.0)
    assert window(start, 30, size=49) == (0.92, 0.85, 49.0, 30.0)


def test_ema_over_two_windows() -> None:
    # .8 x .85 + .2 x .4 = .76: .92 + .027 = .947; then .8 x .76 + .2 = .808: .042 below, + .0042
    assert window(window(Ema().initial()[:4], 20), 50)[:2] == pytest.approx((0.95, 0.808))
    # .947 + .0042 = .9512 is more than the bound; from .80 it is not
    first = window((0.80, 0.85, 0.0, 0.0), 20)
    assert first[0] == pytest.approx(0.827)
    assert window(first, 50)[0] == pytest.approx(0.8312)


def test_ema_counts_only_what_is_at_or_above_its_threshold() -> None:
    ema = Ema()
    state = ema.initial()
    state = ema.update(state, Outcome(confidence=0.92, correct=True))
    state = ema.update(state, Outcome(confidence=0.9199999, correct=True))
    assert state[:4] == (0.92, 0.85, 1.0, 1.0)


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
    state = Td().update((threshold, value, 0.4, 0.5), outcome)
    assert state == pytest.approx((threshold_after, value_after, 0.4, 0.5))


def test_td_learns_at_its_threshold_and_not_below() -> None:
    td = Td()
    assert td.initial() == (0.92, 0.85, 0.70, 0.50)
    above = td.update(td.initial(), Outcome(confidence=0.92, correct=True))
    below = td.update(td.initial(), Outcome(confidence=0.9199999, correct=True))
    assert above[:2] != td.initial()[:2]
    assert below[:2] == td.initial()[:2]


def test_suggest_is_learned_between_the_two() -> None:
    # V = .5 + .1 x .5 = .55; .70 + .05 x (.5 - .55)
    state = Td().update(Td().initial(), Outcome(confidence=0.8, correct=True))
    assert state == pytest.approx((0.92, 0.85, 0.6975, 0.55))
    assert Td().thresholds(state) == pytest.approx((0.92, 0.6975))
    assert Td().thresholds((0.6, 0.85, 0.7, 0.5)) == (0.6, 0.6)


def after(learner: Policy, stream: list[Outcome]) -> ThresholdPair:
    return learner.thresholds(run(learner, stream)[-1][0])


@pytest.mark.parametrize(
    ("hits", "speculate"),
    # at 20 and at 30: all hits -.02 twice; 17 of 20, then 27 of 30: at most .05 off both times;
    # 10 of 20, 20 of 30: +.02, +.02 ends at the bound
    [([True] * 30, 0.88), ([False] * 3 + [True] * 27, 0.92), ([False] * 10 + [True] * 20, 0.95)],
)
def test_gradient_every_ten_from_twenty_on(hits: list[bool], speculate: float) -> None:
    assert after(Gradient(), [Outcome(1.0, hit) for hit in hits])[0] == pytest.approx(speculate)


def test_gradient_looks_at_the_last_fifty_only() -> None:
    state = Gradient().initial()
    for n in range(60):
        state = Gradient().update(state, Outcome(1.0, n >= 10))
    assert int(state[2]).bit_count() == 50


def test_pid_after_two_looks() -> None:
    # err = .85 - .8 = .05: .92 + .005 + .001 + .0025; then .85 - .9 = -.05, sum 0, change -.1
    first = [Outcome(1.0, n >= 2) for n in range(10)]
    assert after(Pid(), first)[0] == pytest.approx(0.9285)
    second = [*first, *[HIT] * 10]
    assert after(Pid(), second)[0] == pytest.approx(0.9285 - 0.005 - 0.005)


def test_sliding_as_source_002_has_it() -> None:
    assert Sliding().thresholds(Sliding().initial()) == (0.70, 0.50)
    # 6 of 20 speculated ones wrong, 30 %: both thresholds look, speculate rises by .05 x .3
    wrong = [Outcome(0.8, n >= 6) for n in range(20)]
    assert after(Sliding(), wrong) == pytest.approx((0.715, 0.50))
    # 20 % is not over 20 %
    assert after(Sliding(), [Outcome(0.8, n >= 4) for n in range(20)])[0] == 0.70
    # 14 of 20 suggested ones right, 70 %: should have been speculated on; 30 % wrong suggestions
    timid = [Outcome(0.6, n >= 6) for n in range(20)]
    assert after(Sliding(), timid) == pytest.approx((0.70 - 0.035, 0.515))


def test_prioritised_replay_draws_by_surprise_and_corrects_for_it() -> None:
    # a draw is in proportion to priority^omega, its weight the least share over its own
    place, weight = Prioritised(omega=1.0)._draw([0.1, 0.9], turn=0.0)
    assert (place, weight) == (0, 1.0)
    place, weight = Prioritised(omega=1.0)._draw([0.1, 0.9], turn=1.0)
    assert (place, weight) == (1, pytest.approx(1 / 9))
    assert Prioritised(omega=1.0, beta=0.0)._draw([0.1, 0.9], turn=1.0)[1] == 1.0


@pytest.mark.parametrize("name", ["ema", "td"])
def test_a_state_of_version_1_goes_on(name: str) -> None:
    """Version 1 learned no `suggest`."""
    learner = POLICIES[name]
    old = (0.6, 0.8, 3.0, 2.0)[: 4 if name == "ema" else 2]
    state = learner.migrated(1, old)
    assert state is not None
    assert state[: len(old)] == old
    assert learner.migrated(learner.version, state) == state
    assert learner.thresholds(state) == (0.6, 0.6)
    assert learner.migrated(1, (*old, 1.0)) is None


def test_clamp() -> None:
    assert [clamp(x, 0.4, 0.95) for x in (0.0, 0.4, 0.5, 0.95, 1.0)] == [0.4, 0.4, 0.5, 0.95, 0.95]
