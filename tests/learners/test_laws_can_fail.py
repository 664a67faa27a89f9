"""Each law refuses a policy that breaks it: a law that nothing can break says nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pytest

from learners.hops import Hops
from learners.outcome import Outcome
from learners.policy import State, ThresholdPair
from learners.td import Td
from tests.learners import test_laws as laws

HITS: Final = [Outcome(0.95, True)] * 60
MIXED: Final = [Outcome(0.95, n % 3 > 0) for n in range(60)]
_CALLS = count()


@dataclass(frozen=True)
class Upward(Td):
    """Rises by hits."""

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        return super().step(own, not correct, target, low)


@dataclass(frozen=True)
class Unbounded(Td):
    """Answers above 1."""

    def thresholds(self, state: State) -> ThresholdPair:
        return ThresholdPair(state[0] + 1.0, state[0])


@dataclass(frozen=True)
class Crossed(Td):
    """Shows less than it starts."""

    def thresholds(self, state: State) -> ThresholdPair:
        return ThresholdPair(state[0], 0.99)


@dataclass(frozen=True)
class Impure(Td):
    """Remembers how often it was asked."""

    def update(self, state: State, outcome: Outcome) -> State:
        after = super().update(state, outcome)
        return (after[0] - 1e-9 * next(_CALLS), *after[1:])


@dataclass(frozen=True)
class Growing(Td):
    """Keeps every outcome."""

    def update(self, state: State, outcome: Outcome) -> State:
        return (*super().update(state[:4], outcome), *state[4:], 1.0)


@dataclass(frozen=True)
class Whole(Td):
    """Counts in integers, which no row keeps apart from floats."""

    def update(self, state: State, outcome: Outcome) -> State:
        after = super().update(state, outcome)
        return (*after[:-1], int(outcome.correct))


@dataclass(frozen=True)
class Credulous(Td):
    """Takes any state for its own."""

    def migrated(self, version: int, state: State) -> State | None:
        return state


@dataclass(frozen=True)
class Upside(Td):
    """A coarse level reads a finer one."""

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        first, *rest = super().learn(chain, outcome)
        return [(first[0], 0.5 * (first[1] + chain[-1][1]), *first[2:]), *rest]


@dataclass(frozen=True)
class Deaf(Td):
    """Learns nothing."""

    def update(self, state: State, outcome: Outcome) -> State:
        return state


@dataclass(frozen=True)
class Contrary(Hops):
    """A calibration that takes hits for misses."""

    def learn(self, chain: Sequence[State], outcome: Outcome) -> Sequence[State]:
        hit = not outcome.correct
        flipped = Outcome(outcome.confidence, hit, False, outcome.gain, outcome.cost)
        return super().learn(chain, flipped)


@dataclass(frozen=True)
class Orphan(Td):
    """A context never seen answers otherwise than its parent."""

    def begin(self, parent: State) -> State:
        return (0.5, *parent[1:])


@dataclass(frozen=True)
class Homeless(Td):
    """Pools states to none of its own."""

    def pooled(self, states: Sequence[State], weights: Sequence[float]) -> State:
        return (*states[0], 0.0)


Law = Callable[..., None]
BROKEN: list[tuple[Law, Any, dict[str, Any]]] = [
    (laws.test_thresholds_stay_within_bounds, Unbounded(), {"stream": HITS, "gain": 1, "cost": 1}),
    (laws.test_thresholds_stay_within_bounds, Crossed(), {"stream": HITS, "gain": 1, "cost": 1}),
    (laws.test_a_replay_gives_the_same_state_to_the_bit, Impure(), {"stream": MIXED}),
    (laws.test_a_state_is_a_tuple_of_floats_of_constant_length_that_survives_storing, Growing(),
     {"stream": MIXED}),
    (laws.test_a_state_is_a_tuple_of_floats_of_constant_length_that_survives_storing, Whole(),
     {"stream": MIXED}),
    (laws.test_a_stored_chain_goes_on_as_if_nothing_had_happened, Impure(),
     {"stream": MIXED, "cut": 7}),
    (laws.test_a_state_that_is_none_is_refused, Credulous(), {}),
    (laws.test_a_pooled_state_is_a_valid_initial_state, Homeless(),
     {"several": [MIXED], "p": 0.9}),
    (laws.test_a_coarse_level_does_not_read_finer_states, Upside(),
     {"stream": MIXED, "finer": MIXED[:5]}),
    (laws.test_hits_never_raise_and_misses_never_lower_a_threshold, Upward(),
     {"stream": MIXED, "correct": True}),
    (laws.test_hits_never_raise_and_misses_never_lower_a_threshold, Upward(),
     {"stream": MIXED, "correct": False}),
    (laws.test_a_hundred_hits_never_raise_and_misses_never_lower_what_a_calibration_answers,
     Contrary(), {"p": 0.8, "correct": True, "r": 0.5}),
    (laws.test_a_hundred_hits_never_raise_and_misses_never_lower_what_a_calibration_answers,
     Contrary(), {"p": 0.8, "correct": False, "r": 0.5}),
    (laws.test_a_constant_world_is_learned, Deaf(), {"correct": True}),
    (laws.test_a_new_context_answers_as_its_parent_or_less_surely, Orphan(), {"stream": MIXED}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("law", "broken", "example"), BROKEN, ids=[type(each[1]).__name__ for each in BROKEN]
)
def test_a_law_refuses_what_breaks_it(law: Any, broken: Any, example: dict[str, Any]) -> None:
    checked = law.hypothesis.inner_test if hasattr(law, "hypothesis") else law
    with pytest.raises(AssertionError):
        checked(learner=broken, **example)
    standard = Hops() if isinstance(broken, Hops) else Td()
    checked(learner=standard, **example)
