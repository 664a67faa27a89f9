"""A state that a policy takes can be computed with, and it takes every state that it reaches."""

from __future__ import annotations

from math import isfinite, nextafter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.constant import Never
from learners.outcome import Columns, Outcome, Part
from learners.policy import HierarchicalPolicy, Policy, State, layout_error
from learners.registry import POLICIES, policy
from tests.learners.worlds import few_examples, outcomes, run, streams

every_policy = pytest.mark.parametrize("learner", POLICIES.values(), ids=POLICIES)
wild = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, -1.0, -10.0, 5e-324, 1e-12, 1e3, 1e9, 1e15, 1.7e308, -1e308])
    | st.floats(0, 1)
    | st.integers(0, 60).map(float)
)
NEGATIVE = (0.0, 1.0, 100.0, 600.0, 0.0, 0.0, -10.0, 0.0, -10.0, 0.0, 0.0, 0.0, 0.0, 1.0,
            0.0, 0.0, 0.0, 0.0)  # fmt: skip


def drawn(data: st.DataObject, learner: Policy) -> State:
    """Return a state that some outcomes led to, with wild numbers in it."""
    stream = data.draw(streams)
    state = list(run(learner, stream, 2)[-1][data.draw(st.integers(0, 1))])
    if state:
        places = st.dictionaries(st.integers(0, len(state) - 1), wild, max_size=6)
        for place, value in data.draw(places).items():
            state[place] = value
    return tuple(state)


def used(learner: Policy, states: list[State], outcome: Outcome) -> None:
    """Do with states whatever a worker does."""
    highest = nextafter(1.0, 2.0) if isinstance(learner, Never) else 1.0
    for state in states:
        speculate, suggest = learner.thresholds(state)
        assert 0.0 <= suggest <= highest
        assert 0.0 <= speculate <= highest
        assert 0.0 <= learner.threshold(state, outcome.gain, outcome.cost) <= highest
        deviation = learner.deviation(state)
        assert deviation is None or all(map(isfinite, deviation))
        chain = [state, learner.begin(state)]
        for _ in range(10):  # every eighth forgets
            chain = list(learner.learn(chain, outcome))
        learner.thresholds(learner.below(chain[1], chain[0]))
        if isinstance(learner, HierarchicalPolicy):
            run_of = Columns([0.7] * 9, [True, False, True] * 3, [1.0] * 9, [1.0] * 9)
            learner.learn_run([Part(state, range(9))], run_of)
    begun = learner.pooled(states, [1.0 + n for n in range(len(states))])
    learner.thresholds(begun)


@every_policy
@few_examples
@given(data=st.data(), outcome=outcomes)
def test_an_accepted_state_is_usable(
    learner: Policy, data: st.DataObject, outcome: Outcome
) -> None:
    states = [drawn(data, learner) for _ in range(2)]
    taken = [each for each in states if learner.migrated(learner.version, each) is not None]
    if taken:
        used(learner, taken, outcome)


@every_policy
@few_examples
@given(stream=streams)
def test_reachable_states_are_accepted(learner: Policy, stream: list[Outcome]) -> None:
    for chain in run(learner, stream, 3):
        assert [layout_error(learner, learner.version, state) for state in chain] == [None] * 3


@pytest.mark.parametrize("name", ["hops", "hops:keep=.999999", "hops:keep=.5", "hops_target"])
def test_a_long_life_stays_sound(name: str) -> None:
    """Also with the same confidence again and again, which determines the slope least."""
    learner = policy(name)
    for confidence in (1.0, 0.5, 0.0):
        chain = [learner.initial()]
        for n in range(20_000):
            right = n % 10_000 < 9_000
            chain = list(learner.learn(chain, Outcome(confidence, right, gain=1e9, cost=1e-9)))
        assert layout_error(learner, learner.version, chain[0]) is None


@pytest.mark.parametrize("name", list(POLICIES))
@few_examples
@given(data=st.data())
def test_reading_an_older_state_never_raises(name: str, data: st.DataObject) -> None:
    learner = POLICIES[name]
    learner.migrated(1, drawn(data, learner))


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (NEGATIVE, "slope variance is -10, which must be 1e-12 to 1000"),
        ((*NEGATIVE[:6], 1.0, 0.0, 1.0, *NEGATIVE[9:]), "cold variance is 0"),
        ((*NEGATIVE[:6], 1.0, 2.0, 1.0, *NEGATIVE[9:12], 1.0, *NEGATIVE[13:]), "do not allow"),
        ((1e308,) * 18, "depth is 1e+308"),
    ],
)
def test_an_invalid_calibration_is_named(state: State, why: str) -> None:
    for name in ("hops", "hops_target", "meta"):
        learner: Any = POLICIES[name]
        whole = (*state, *learner.initial()[18:])
        assert learner.migrated(learner.version, whole) is None
        assert why in (layout_error(learner, learner.version, whole) or "")
