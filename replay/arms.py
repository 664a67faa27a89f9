"""Arms: one policy each, walked over the same predictions in blocks, for speed.

Every arm does to the bit what `backtest.Replay` does one prediction at a time (a law in the
tests). Not here: which predictions there are (`judge`), and what the answers were worth (`tally`).
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from headstart.calibration import solve, wanted
from learners.constant import Always, Fixed, Never
from learners.hops import Hops
from learners.outcome import Outcome
from learners.policy import Policy, Separate, State
from learners.rule import Rule

Chain = tuple[int, ...]
"""The contexts of a prediction, coarse to fine, as numbers that `judge` gives."""
Step = tuple[Chain, Outcome | None, int]
"""A prediction that is asked about (no outcome yet, its number), or one that is judged (-1 where it
was asked about in the same moment)."""


class Answers(NamedTuple):
    """What was in force for the judged predictions of a block, in order, when each was asked about.

    `thresholds` for their own gain and cost, `served` for the context's average ones, `suggest`
    only where it was wanted.
    """

    thresholds: Sequence[float]
    served: Sequence[float]
    suggest: Sequence[float]


class Arm(Protocol):
    """One way to decide, over all predictions."""

    nanoseconds: int

    def run(self, steps: Sequence[Step], contexts: int) -> Answers:
        """Answer and learn, in order; `contexts`: how many numbers of contexts are taken."""
        ...

    def forget(self, before: int) -> None:
        """Forget what was asked about before a number and can no longer be judged."""
        ...

    def state(self, context: int) -> State | None:
        """Return what is known of a context; None where nothing is."""
        ...


class _Walking:
    """The states of one policy by context, and of what was asked about and is not yet judged."""

    nanoseconds = 0

    def __init__(self) -> None:
        self._states: list[State | None] = []
        self._waiting: dict[int, Any] = {}

    def _grow(self, contexts: int) -> list[State | None]:
        states = self._states
        if len(states) < contexts:
            states.extend([None] * (contexts - len(states)))
        return states

    def forget(self, before: int) -> None:
        """Forget what was asked about before a number and can no longer be judged."""
        waiting = self._waiting
        while waiting and (first := next(iter(waiting))) < before:
            del waiting[first]

    def state(self, context: int) -> State | None:
        """Return what is known of a context; None where nothing is."""
        return self._states[context] if context < len(self._states) else None


class SeparateArm(_Walking):
    """A policy whose levels learn each on its own, and which knows no gain and cost."""

    def __init__(self, policy: Separate) -> None:
        super().__init__()
        self._policy = policy

    def run(self, steps: Sequence[Step], contexts: int) -> Answers:
        """Answer and learn, in order."""
        states, waiting = self._grow(contexts), self._waiting
        threshold, update = self._policy.threshold, self._policy.update
        thresholds: list[float] = []
        tell = thresholds.append
        for chain, outcome, asked in steps:
            state = states[chain[-1]]
            if outcome is None:
                waiting[asked] = self._finest(chain) if state is None else state
                continue
            if asked >= 0:
                tell(threshold(waiting.pop(asked), 0.0, 0.0))
            else:
                tell(threshold(self._finest(chain) if state is None else state, 0.0, 0.0))
            if state is None:
                self._begin(chain)
            for level in chain:
                states[level] = update(states[level], outcome)  # type: ignore[arg-type]
        return Answers(thresholds, thresholds, ())

    def _finest(self, chain: Chain) -> State:
        """Return the state of the finest context of which something is known."""
        for level in reversed(chain):
            if (state := self._states[level]) is not None:
                return state
        return self._policy.initial()

    def _begin(self, chain: Chain) -> None:
        """Give every context of a chain a state: its parent's."""
        above = self._policy.initial()
        for level in chain:
            state = self._states[level]
            if state is None:
                state = self._states[level] = above
            above = state


class RuleArm(SeparateArm):
    """A rule that holds a threshold: what `Rule.update` does, without a call for each level."""

    def __init__(self, policy: Rule) -> None:
        super().__init__(policy)
        self._rule = policy

    def run(self, steps: Sequence[Step], contexts: int) -> Answers:
        """Answer and learn, in order."""
        states: list[Any] = self._grow(contexts)
        waiting, rule, step = self._waiting, self._rule, self._rule.step
        half = len(rule.initial()) // 2
        target, low = rule.target, rule.min
        suggest_target, suggest_low = rule.suggest_target, rule.suggest_min
        thresholds: list[float] = []
        tell = thresholds.append
        for chain, outcome, asked in steps:
            if states[chain[-1]] is None:
                state = self._finest(chain)
                if outcome is not None:
                    self._begin(chain)
            else:
                state = states[chain[-1]]
            if outcome is None:
                waiting[asked] = state
                continue
            tell(state[0] if asked < 0 else waiting.pop(asked)[0])
            confidence, correct = outcome.confidence, outcome.correct
            for level in chain:
                state = states[level]
                if confidence >= state[0]:
                    own = step(state[:half], correct, target, low)
                    states[level] = own + state[half:]
                elif confidence >= state[half]:
                    own = step(state[half:], correct, suggest_target, suggest_low)
                    states[level] = state[:half] + own
        return Answers(thresholds, thresholds, ())


class ConstantArm(_Walking):
    """A policy that learns nothing and answers the same everywhere."""

    def __init__(self, policy: Fixed | Never | Always) -> None:
        super().__init__()
        self._threshold = policy.thresholds(policy.initial()).speculate

    def run(self, steps: Sequence[Step], contexts: int) -> Answers:  # noqa: ARG002
        """Answer."""
        answers = [self._threshold] * sum(step[1] is not None for step in steps)
        return Answers(answers, answers, ())


class HopsArm(_Walking):
    """HOPS without the states in between that nobody looks at."""

    def __init__(self, policy: Hops) -> None:
        super().__init__()
        self._policy = policy

    def run(self, steps: Sequence[Step], contexts: int) -> Answers:
        """Answer and learn, in order."""
        states: list[Any] = self._grow(contexts)
        waiting = self._waiting
        along, learn = self._policy.along, self._policy.learn
        thresholds: list[float] = []
        served: list[float] = []
        calibration: tuple[float, float, float, float, float]
        for chain, outcome, asked in steps:
            found = [states[level] for level in chain]
            if None in found:
                found = self._begun(found)
            if outcome is None:
                waiting[asked] = along(found), found[-1][2], found[-1][3]
                continue
            if asked >= 0:
                calibration, gain, cost = waiting.pop(asked)
            else:
                calibration = along(found)
                gain, cost = found[-1][2], found[-1][3]
            average = solve(*calibration, wanted(gain, cost))
            served.append(average)
            own_gain, own_cost = outcome.gain, outcome.cost
            if (own_gain <= 0.0 and own_cost <= 0.0) or (own_gain == gain and own_cost == cost):
                thresholds.append(average)
            else:
                thresholds.append(solve(*calibration, wanted(own_gain, own_cost)))
            for level, state in zip(chain, learn(found, outcome), strict=True):
                states[level] = state
        return Answers(thresholds, served, ())

    def _begun(self, found: Sequence[State | None]) -> list[State]:
        policy = self._policy
        begun: list[State] = []
        for state in found:
            if state is None:
                # Only the parent's average gain and cost, and depth, are looked at.
                begun.append(policy.begin(begun[-1]) if begun else policy.initial())
            else:
                begun.append(state)
        return begun


class PlainArm(_Walking):
    """Any policy, level by level as a reader resolves them; times what learning takes."""

    def __init__(self, policy: Policy, *, suggest: bool = False) -> None:
        super().__init__()
        self._policy, self._suggest = policy, suggest

    def run(self, steps: Sequence[Step], contexts: int) -> Answers:
        """Answer and learn, in order."""
        states, waiting, policy = self._grow(contexts), self._waiting, self._policy
        found = Answers([], [], [])
        for chain, outcome, asked in steps:
            resolved = self._resolved(chain)
            if outcome is None:
                waiting[asked] = resolved[-1]
                continue
            state = waiting.pop(asked) if asked >= 0 else resolved[-1]
            found.thresholds.append(policy.threshold(state, outcome.gain, outcome.cost))  # type: ignore[attr-defined]
            found.served.append(policy.threshold(state, 0.0, 0.0))  # type: ignore[attr-defined]
            if self._suggest:
                found.suggest.append(policy.thresholds(state).suggest)  # type: ignore[attr-defined]
            begun = perf_counter_ns()
            learned = policy.learn(resolved, outcome)
            self.nanoseconds += perf_counter_ns() - begun
            for level, after in zip(chain, learned, strict=True):
                states[level] = after
        return found

    def _resolved(self, chain: Chain) -> list[State]:
        policy, resolved = self._policy, list[State]()
        for level in chain:
            state = self._states[level]
            if not resolved:
                resolved.append(policy.initial() if state is None else state)
            elif state is None:
                resolved.append(policy.begin(resolved[-1]))
            else:
                resolved.append(policy.below(state, resolved[-1]))
        return resolved


class LiveArm:
    """What the executors really did: the log says of each prediction whether it was started."""

    nanoseconds = 0

    def run(self, steps: Sequence[Step], contexts: int) -> Answers:  # noqa: ARG002
        """Return 0 for what was started, and for all else a threshold that nothing reaches."""
        done = [0.0 if step[1].speculated else 2.0 for step in steps if step[1] is not None]
        return Answers(done, (), ())

    def forget(self, before: int) -> None:
        """Do nothing: nothing is kept."""

    def state(self, context: int) -> State | None:  # noqa: ARG002
        """Return None: it knows nothing."""
        return None


def arm_of(policy: Policy, *, suggest: bool = False) -> Arm:
    """Return the fastest arm for a policy; `suggest`: one that answers for suggestions too."""
    if not suggest:
        if type(policy) is Hops:
            return HopsArm(policy)
        if isinstance(policy, Fixed | Never | Always):
            return ConstantArm(policy)
        if isinstance(policy, Rule):
            return RuleArm(policy)
        if isinstance(policy, Separate):
            return SeparateArm(policy)
    return PlainArm(policy, suggest=suggest)
