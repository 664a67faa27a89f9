"""One policy over recorded outcomes: what it would have answered, and what that was worth.

Full feedback: every prediction is judged, speculated on or not, so each policy is judged exactly
on the same outcomes. Not here: reading them (`outcomes`), sums over them (`score`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter_ns
from typing import NamedTuple

from learners.outcome import Outcome
from learners.policy import Policy, State, ThresholdPair
from replay.predictions.outcomes_file import JudgedOutcome


class Answer(NamedTuple):
    """What was in force for one prediction before its outcome was seen.

    `threshold` for the line's gain and cost; `served` for the context's average ones, with the one
    of suggestions; `level` the finest path that anything was known of.
    """

    threshold: float
    served: ThresholdPair
    level: str


class ReferenceReplay:
    """The states of one policy in every context seen so far."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._states: dict[str, State] = {}
        self.nanoseconds = self.updates = 0

    def threshold(self, paths: Sequence[str], outcome: Outcome) -> float:
        """Return the threshold in force for a prediction's own gain and cost."""
        return self._policy.threshold(self._chain(paths)[-1], outcome.gain, outcome.cost)

    def answer(self, paths: Sequence[str], outcome: Outcome) -> Answer:
        """Return what a reader would be told for a prediction."""
        state = self._chain(paths)[-1]
        level = next((path for path in reversed(paths) if path in self._states), paths[0])
        threshold = self._policy.threshold(state, outcome.gain, outcome.cost)
        return Answer(threshold, self._policy.thresholds(state), level)

    def learn(self, paths: Sequence[str], outcome: Outcome) -> None:
        """Apply one outcome at every level of its context."""
        chain = self._chain(paths)
        begun = perf_counter_ns()
        learned = self._policy.learn(chain, outcome)
        self.nanoseconds += perf_counter_ns() - begun
        self.updates += 1
        self._states.update(zip(paths, learned, strict=True))

    def forget(self, holds: Callable[[str], bool]) -> None:
        """Forget the contexts, by path, that are to learn anew."""
        for path in [path for path in self._states if holds(path)]:
            del self._states[path]

    def _chain(self, paths: Sequence[str]) -> list[State]:
        """Return the states of the paths as they stand now: a reader resolves its chain anew."""
        policy = self._policy
        chain: list[State] = []
        for path in paths:
            state = self._states.get(path)
            if not chain:
                chain.append(policy.initial() if state is None else state)
            elif state is None:
                chain.append(policy.begin(chain[-1]))
            else:
                chain.append(policy.below(state, chain[-1]))
        return chain


def answers(replay: ReferenceReplay, judged: Iterable[JudgedOutcome]) -> Iterator[Answer]:
    """Yield what is in force before each outcome, then learn from it."""
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
