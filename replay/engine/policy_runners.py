"""Runs one policy over predictions, block by block.

To the bit what `ReferenceReplay` does one prediction at a time (a law in the tests). Not here:
which predictions there are (`engine`), and what the answers were worth (`accumulators`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from learners.constant import Always, Fixed, Never
from learners.hops import Hops
from learners.hops_backtest import HopsWalk
from learners.outcome import Outcome, Run
from learners.policy import IndependentPolicy, Policy, State
from learners.threshold_rule import ThresholdRule
from replay.predictions.blocks import Block, FirstOutcome, Group

_ANY = Run((Outcome(1.0, True),), (1.0,), (True,))
"""An outcome to ask a policy before; what is learned from it is discarded."""


class RunFunction(Protocol):
    """Return a context's state after a run, and its threshold before each outcome.

    See `IndependentPolicy.course`.
    """

    def __call__(
        self, own: State, run: Run, /, *, with_thresholds: bool
    ) -> tuple[State, Sequence[float]]:
        """Return both; the thresholds only if `with_thresholds`."""
        ...


class Answers(NamedTuple):
    """The thresholds of a block's predictions, in order, as of when each was asked about.

    `thresholds` for `Block.known`, `served` for the context's average gain and cost, `suggest`
    only where it is asked for.
    """

    thresholds: Sequence[float]
    served: Sequence[float]
    suggest: Sequence[float]

    def replaced(self, thresholds: Sequence[tuple[int, float]]) -> Answers:
        """Return these with other `thresholds` at some places."""
        if not thresholds:
            return self
        own = list(self.thresholds)
        for place, threshold in thresholds:
            own[place] = threshold
        return self._replace(thresholds=own)


class PolicyRunner(Protocol):
    """One policy over all predictions; `nanoseconds`: CPU time of learning, where measured."""

    nanoseconds: int

    def run(self, block: Block) -> Answers:
        """Answer and learn, in order."""
        ...

    def forget(self, before: int) -> None:
        """Drop the questions of numbers below `before`, which will not be judged."""
        ...

    def reset(self, contexts: Sequence[int]) -> None:
        """Drop the states of contexts."""
        ...


class _Stateful:
    """The states of one policy by context, and its answers to open questions by number."""

    nanoseconds = 0

    def __init__(self) -> None:
        self._states: list[Any] = []
        self._waiting: dict[int, Any] = {}

    def _grow(self, contexts: int) -> list[Any]:
        states = self._states
        if len(states) < contexts:
            states.extend([None] * (contexts - len(states)))
        return states

    def forget(self, before: int) -> None:
        """Drop the questions of numbers below `before`, which will not be judged."""
        waiting = self._waiting
        while waiting and (first := next(iter(waiting))) < before:
            del waiting[first]

    def reset(self, contexts: Sequence[int]) -> None:
        """Drop the states of contexts."""
        states = self._states
        for context in contexts:
            if context < len(states):
                states[context] = None


class IndependentRunner(_Stateful):
    """A policy whose levels learn independently, and which ignores gain and cost.

    So a block is run context by context. A question is answered by the state at its place; a
    context begins with the state that the one above it had then.
    """

    def __init__(self, policy: IndependentPolicy) -> None:
        super().__init__()
        self._course: RunFunction = policy.course
        self._initial = policy.initial()
        self._done: dict[int, tuple[State, State, Sequence[float]]] = {}
        """States before and after a run of this block, and the thresholds before each outcome."""

    def run(self, block: Block) -> Answers:
        """Answer and learn."""
        thresholds = [0.0] * len(block)
        known: dict[int, tuple[Group, Sequence[float]]] = {}
        states = self._grow(block.contexts)
        for birth in block.births_below.get(-1, ()):
            states[birth.context] = self._initial
        self._done.clear()
        for group in block.groups:
            asked = group.context in block.questioned
            answers = self._run_context(group, block, wanted=group.answers or asked)
            if group.answers:  # coarse before fine: the finest overwrites
                _put(thresholds, group.places, answers)
            if asked:
                known[group.context] = group, answers
        if block.questions or block.late:
            self._answer_questions(block, known, thresholds)
        return Answers(thresholds, thresholds, ())

    def _run_context(self, group: Group, block: Block, *, wanted: bool) -> Sequence[float]:
        """Have a context learn; return its thresholds, if `wanted`.

        A context with the same outcomes as the one above it has the same state: the run is reused.
        """
        states, context = self._states, group.context
        begun, births = states[context], block.births_below.get(context, ())
        if group.alone:
            done = self._done.get(id(group.run))
            first = group.places[0]
            if done and done[0] is begun and all(birth.place <= first for birth in births):
                for birth in births:
                    states[birth.context] = begun
                states[context] = done[1]
                return done[2]
        if births:
            thresholds = self._run_parent(group, births)
        else:
            states[context], thresholds = self._course(
                begun, group.run, with_thresholds=wanted or group.alone
            )
        if group.alone:
            self._done[id(group.run)] = begun, states[context], thresholds
        return thresholds

    def _run_parent(self, group: Group, births: Sequence[FirstOutcome]) -> Sequence[float]:
        """Have a context learn, in pieces between the first outcomes of those below it."""
        state, done, thresholds = self._states[group.context], 0, list[float]()
        for birth in (*births, None):
            end = len(group.places) if birth is None else bisect_left(group.places, birth.place)
            if end > done:
                state, more = self._course(state, group.run.piece(done, end), with_thresholds=True)
                thresholds += more
                done = end
            if birth is not None:
                self._states[birth.context] = state
        self._states[group.context] = state
        return thresholds

    def _answer_questions(
        self, block: Block, known: dict[int, tuple[Group, Sequence[float]]], into: list[float]
    ) -> None:
        """Answer the questions of a block; put in the answers of those judged in it."""
        waiting = self._waiting
        for number, place, context in block.questions:
            if context in known:
                group, answers = known[context]
                nth = bisect_left(group.places, place)
                if nth < len(answers):
                    waiting[number] = answers[nth]
                    continue
            waiting[number] = self._threshold(self._states[context])
        for place, number in block.late:
            into[place] = waiting.pop(number)

    def _threshold(self, state: State | None) -> float:
        """Return the threshold of a state; None: the initial one."""
        state = self._initial if state is None else state
        return self._course(state, _ANY, with_thresholds=True)[1][0]


class RuleRunner(IndependentRunner):
    """A threshold rule: only its `speculate` part, which reads nothing else."""

    def __init__(self, policy: ThresholdRule) -> None:
        super().__init__(policy)
        self._course = policy.course_of_speculate
        self._initial = policy.fresh(policy.start, policy.target)


class ConstantRunner(_Stateful):
    """A policy that learns nothing and answers the same everywhere."""

    def __init__(self, policy: Fixed | Never | Always) -> None:
        super().__init__()
        self._threshold = policy.thresholds(policy.initial()).speculate

    def run(self, block: Block) -> Answers:
        """Answer."""
        answers = [self._threshold] * len(block)
        return Answers(answers, answers, ())


class HopsRunner:
    """HOPS, by its flat loop (`HopsWalk`)."""

    nanoseconds = 0

    def __init__(self, policy: Hops) -> None:
        self._walk = HopsWalk(policy)

    def run(self, block: Block) -> Answers:
        """Answer and learn, in order."""
        return Answers(*self._walk.through(block.steps, block.contexts, block.known), ())

    def forget(self, before: int) -> None:
        """Drop the questions of numbers below `before`, which will not be judged."""
        self._walk.forget(before)

    def reset(self, contexts: Sequence[int]) -> None:
        """Drop the states of contexts."""
        self._walk.reset(contexts)


class PlainRunner(_Stateful):
    """Any policy, level by level as a reader resolves them; measures the time of learning."""

    def __init__(self, policy: Policy, *, suggest: bool = False) -> None:
        super().__init__()
        self._policy, self._suggest = policy, suggest

    def run(self, block: Block) -> Answers:
        """Answer and learn, in order."""
        states, waiting, policy = self._grow(block.contexts), self._waiting, self._policy
        found, known = Answers([], [], []), iter(block.known)
        for chain, outcome, asked in block.steps:
            resolved = resolve(policy, [states[level] for level in chain])
            if outcome is None:
                waiting[asked] = resolved[-1]
                continue
            state = waiting.pop(asked) if asked >= 0 else resolved[-1]
            found.thresholds.append(policy.threshold(state, *next(known)))  # type: ignore[attr-defined]
            found.served.append(policy.threshold(state, 0.0, 0.0))  # type: ignore[attr-defined]
            if self._suggest:
                found.suggest.append(policy.thresholds(state).suggest)  # type: ignore[attr-defined]
            begun = perf_counter_ns()
            learned = policy.learn(resolved, outcome)
            self.nanoseconds += perf_counter_ns() - begun
            for level, after in zip(chain, learned, strict=True):
                states[level] = after
        return found


class LiveRunner:
    """What the executors did, as the log records of each prediction."""

    nanoseconds = 0

    def run(self, block: Block) -> Answers:
        """Return 0 for what was started, else a threshold above any confidence."""
        done = [0.0 if outcome.speculated else 2.0 for outcome in block.outcomes]
        return Answers(done, (), ())

    def forget(self, before: int) -> None:
        """Do nothing: nothing is kept."""

    def reset(self, contexts: Sequence[int]) -> None:
        """Do nothing: nothing is learned."""


def resolve(policy: Policy, states: Sequence[State | None]) -> list[State]:
    """Return the states of a chain of contexts, coarse to fine, as a reader resolves them.

    None: nothing is known of a context.
    """
    resolved: list[State] = []
    for state in states:
        if not resolved:
            resolved.append(policy.initial() if state is None else state)
        elif state is None:
            resolved.append(policy.begin(resolved[-1]))
        else:
            resolved.append(policy.below(state, resolved[-1]))
    return resolved


def _put(into: list[float], places: Sequence[int], values: Sequence[float]) -> None:
    if isinstance(places, range):
        into[places.start : places.stop] = values
    else:
        for place, value in zip(places, values, strict=True):
            into[place] = value


def runner_for(policy: Policy, *, suggest: bool = False) -> PolicyRunner:
    """Return the fastest runner for a policy; `suggest`: one with thresholds of suggestions."""
    if not suggest:
        if type(policy) is Hops:
            return HopsRunner(policy)
        if isinstance(policy, Fixed | Never | Always):
            return ConstantRunner(policy)
        if isinstance(policy, ThresholdRule):
            return RuleRunner(policy)
        if isinstance(policy, IndependentPolicy):
            return IndependentRunner(policy)
    return PlainRunner(policy, suggest=suggest)
