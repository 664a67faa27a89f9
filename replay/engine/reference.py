"""Runs one policy over recorded outcomes, one prediction at a time: slow and obvious.

The law for the fast runners. Every prediction has its outcome, started or not, so all policies
are judged on the same outcomes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter_ns
from typing import NamedTuple

from learners.outcome import Outcome
from learners.policy import Policy, State, ThresholdPair
from replay.engine.policy_runners import resolve
from replay.predictions.cold_start import ColdStart, believed, believing
from replay.predictions.outcomes_file import JudgedOutcome
from replay.predictions.stakes import StakesHistory


class Answer(NamedTuple):
    """The thresholds for one prediction before its outcome was learned from.

    `threshold` for the gain and cost that a decision could know (`StakesHistory`); `served` for the
    context's average ones, with the one of suggestions; `level` the finest path that anything was
    known of.
    """

    threshold: float
    served: ThresholdPair
    level: str


class ReferenceReplay:
    """The states of one policy in every context seen so far."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._states: dict[str, State] = {}
        self._stakes = StakesHistory[str]()
        self._cold_start, self._believes = ColdStart[str](), believing(policy)
        self.nanoseconds = self.updates = 0

    def state(self, paths: Sequence[str]) -> State:
        """Return the finest state of the paths as they stand now."""
        return self._chain(paths)[-1]

    def outcomes(self, paths: Sequence[str]) -> int:
        """Return how many outcomes the workflow type has had so far."""
        return self._cold_start.outcomes(paths)

    def threshold(
        self,
        paths: Sequence[str],
        outcome: Outcome,
        state: State | None = None,
        outcomes: int | None = None,
    ) -> float:
        """Return the threshold in force for a prediction.

        `state`, `outcomes`: as they were when it was asked for; None: they are still the same.
        """
        if self._believes:
            had = self.outcomes(paths) if outcomes is None else outcomes
            found = believed(paths, outcome, had, self._stakes)
            if found is not None:
                return found
        if state is None:
            state = self.state(paths)
        return self._policy.threshold(state, *self._stakes.known(paths, outcome))

    def answer(self, paths: Sequence[str], outcome: Outcome) -> Answer:
        """Return what a reader would get for a prediction."""
        state = self.state(paths)
        level = next((path for path in reversed(paths) if path in self._states), paths[0])
        threshold = self.threshold(paths, outcome, state)
        return Answer(threshold, self._policy.thresholds(state), level)

    def learn(self, paths: Sequence[str], outcome: Outcome) -> None:
        """Apply one outcome at every level of its context."""
        chain, outcome = self._chain(paths), self._stakes.learn(paths, outcome)
        self._cold_start.learn(paths)
        begun = perf_counter_ns()
        learned = self._policy.learn(chain, outcome)
        self.nanoseconds += perf_counter_ns() - begun
        self.updates += 1
        self._states.update(zip(paths, learned, strict=True))

    def forget(self, holds: Callable[[str], bool]) -> None:
        """Forget the contexts whose path a predicate holds for."""
        gone = {path for path in self._states if holds(path)}
        for path in gone:
            del self._states[path]
        self._stakes.reset(gone)
        self._cold_start.reset(gone)

    def _chain(self, paths: Sequence[str]) -> list[State]:
        return resolve(self._policy, [self._states.get(path) for path in paths])


def answers(replay: ReferenceReplay, judged: Iterable[JudgedOutcome]) -> Iterator[Answer]:
    """Yield the answer before each outcome, then learn from it."""
    for each in judged:
        yield replay.answer(each.paths, each.outcome)
        replay.learn(*each)


def started(
    replay: ReferenceReplay, judged: Iterable[JudgedOutcome], delay: int = 0
) -> Iterator[bool]:
    """Yield whether each prediction is speculated on; it is learned `delay` outcomes later."""
    waiting: deque[JudgedOutcome] = deque()
    for each in judged:
        yield each.outcome.confidence >= replay.threshold(each.paths, each.outcome)
        waiting.append(each)
        if len(waiting) > delay:
            replay.learn(*waiting.popleft())
