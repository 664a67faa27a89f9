"""Laws that every policy keeps, over whatever outcomes come."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners import registry
from learners.ema import Ema
from learners.outcome import Outcome
from learners.policy import Policy, State
from learners.registry import POLICIES, policy
from learners.td import Td

confidence = st.floats(0, 1)
outcomes = st.builds(
    Outcome,
    confidence=confidence | st.floats(0.9, 1),  # most must be learned from
    correct=st.booleans(),
    speculated=st.booleans(),
    gain=st.floats(0, 1e6),
    cost=st.floats(0, 1e6),
    timestamp=st.integers(0, 2**50),
)
# Long enough for several windows of 50: a law that is looked at for ten outcomes says little.
streams = st.lists(outcomes, max_size=40).map(lambda some: some * 12)
every_policy = pytest.mark.parametrize("learner", POLICIES.values(), ids=POLICIES)


def states(learner: Policy, stream: list[Outcome]) -> list[State]:
    found = [learner.initial()]
    for outcome in stream:
        found.append(learner.update(found[-1], outcome))
    return found


@every_policy
@given(stream=streams)
def test_thresholds_stay_within_bounds(learner: Policy, stream: list[Outcome]) -> None:
    for state in states(learner, stream):
        speculate, suggest = learner.thresholds(state)
        assert 0.40 <= speculate <= 0.95
        assert 0.40 <= suggest <= speculate


@every_policy
@given(stream=streams)
def test_a_replay_gives_the_same_state_to_the_bit(learner: Policy, stream: list[Outcome]) -> None:
    once = states(learner, stream)
    again = states(type(learner)(), stream)  # a policy keeps nothing but its state
    assert [struct.pack(f"<{len(s)}d", *s) for s in once] == [
        struct.pack(f"<{len(s)}d", *s) for s in again
    ]


@every_policy
@given(stream=streams)
def test_a_state_is_a_tuple_of_floats_of_constant_length(
    learner: Policy, stream: list[Outcome]
) -> None:
    size = len(learner.initial())
    for state in states(learner, stream):
        assert type(state) is tuple
        assert [type(value) for value in state] == [float] * size
        assert struct.unpack(f"<{size}d", struct.pack(f"<{size}d", *state)) == state


@every_policy
@given(stream=streams, below=st.floats(0, 1, exclude_max=True), correct=st.booleans())
def test_outcomes_below_the_threshold_change_nothing(
    learner: Policy, stream: list[Outcome], below: float, correct: bool
) -> None:
    state = states(learner, stream)[-1]
    speculate = learner.thresholds(state).speculate
    outcome = Outcome(confidence=below * speculate, correct=correct)
    assert outcome.confidence < speculate
    assert learner.update(state, outcome) == state


@every_policy
@given(stream=streams)
def test_hits_never_raise_the_threshold(learner: Policy, stream: list[Outcome]) -> None:
    hits = [Outcome(confidence=outcome.confidence, correct=True) for outcome in stream]
    path = [learner.thresholds(state).speculate for state in states(learner, hits)]
    assert all(later <= earlier for earlier, later in pairwise(path))


@every_policy
@given(stream=streams)
def test_misses_never_lower_the_threshold(learner: Policy, stream: list[Outcome]) -> None:
    misses = [Outcome(confidence=outcome.confidence, correct=False) for outcome in stream]
    path = [learner.thresholds(state).speculate for state in states(learner, misses)]
    assert all(later >= earlier for earlier, later in pairwise(path))


@every_policy
@pytest.mark.parametrize("correct", [True, False])
def test_a_constant_world_is_learned(learner: Policy, correct: bool) -> None:
    sure = Outcome(confidence=1.0, correct=correct)
    before = learner.thresholds(learner.initial()).speculate
    after = learner.thresholds(states(learner, [sure] * 600)[-1]).speculate
    assert after < before - 0.1 if correct else after == 0.95


@pytest.mark.parametrize("learner", [Ema(), Td()], ids=["ema", "td"])
@given(stream=streams)
def test_only_the_judgement_matters_to_the_rules_of_the_source(
    learner: Policy, stream: list[Outcome]
) -> None:
    """Full feedback: an outcome teaches the same whether or not it was speculated on."""
    bare = [Outcome(confidence=o.confidence, correct=o.correct) for o in stream]
    assert states(learner, stream) == states(learner, bare)


@every_policy
def test_before_any_outcome_the_answer_is_the_conservative_one(learner: Policy) -> None:
    assert learner.thresholds(learner.initial()) == pytest.approx((0.92, 0.70))


def test_policies_are_found_by_name() -> None:
    assert all(policy(name) is learner for name, learner in POLICIES.items())
    assert all(learner.name == name for name, learner in POLICIES.items())
    assert registry.DEFAULT in POLICIES


def test_an_unknown_policy_is_answered_with_those_there_are() -> None:
    with pytest.raises(LookupError, match=r"'hops'; choose one of ema, td$"):
        policy("hops")
