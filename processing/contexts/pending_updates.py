"""Learns pending outcomes: many at once, when a context is read.

Contexts of one workflow type learn together, because a finer one reads what a coarser one knew at
that time; other workflow types are independent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from learners.outcome import Columns, Outcome, Part, Run
from learners.policy import HierarchicalPolicy, IndependentPolicy, Policy, moving_average
from processing.config import Objectives
from processing.contexts.context import Context, ContextPath
from processing.contexts.vectorized_update import STAKES_RATE, only_policy, update_from_rows
from processing.kernel_handle import kernels
from processing.state.counters import CORRECT, OutcomeRow, add, count
from processing.state.packed_state import ContextNumbers

Stakes = tuple[Sequence[float], Sequence[float]]
"""Gains and costs, in ms."""
Learning = Sequence[tuple[Context, Sequence[int]]]
"""Contexts of one policy, coarse before fine, with the indexes of the outcomes each learns."""


class PendingUpdates:
    """The outcomes that the contexts of a partition have yet to learn and count."""

    def __init__(self, weights: Objectives) -> None:
        self._weights = weights
        self._waiting: list[list[OutcomeRow]] = []

    def expect(self, pending: list[OutcomeRow]) -> None:
        """Register a workflow type's empty list of outcomes; `apply_pending` will process it."""
        self._waiting.append(pending)

    def apply_pending(self) -> None:
        """Learn all that is pending, which mostly is nothing."""
        if self._waiting:
            apply_pending((self,))

    def _learn_or_collect(self, collected: dict[Policy, list[OutcomeRow]], compiled: Any) -> None:
        """Learn what is pending; what kernels are to learn is added to `collected` instead."""
        for pending in self._waiting:
            policy = None if compiled is None else only_policy([each[-1] for each in pending])
            if policy is None or compiled.rule_of(policy) is None:
                _learn(pending, self._weights)
            else:
                collected.setdefault(policy, []).extend(pending)
            pending.clear()
        self._waiting.clear()


def apply_pending(several: Sequence[PendingUpdates]) -> None:
    """Learn what is pending in several partitions: a kernel call costs as much as ten outcomes."""
    compiled, collected = kernels(), dict[Policy, list[OutcomeRow]]()
    for each in several:
        each._learn_or_collect(collected, compiled)
    for policy, rows in collected.items():
        update_from_rows(compiled.rule_of(policy), several[0]._weights, rows, compiled)


def _learn(rows: Sequence[OutcomeRow], weights: Objectives) -> None:
    """Let the contexts of one workflow type learn and count outcomes, in order."""
    confidence, gain, cost, _, at, flags, paths = zip(*rows, strict=True)
    correct = [flag & CORRECT > 0 for flag in flags]
    of_path: dict[ContextPath, list[int]] = {}
    for index, path in enumerate(paths):
        of_path.setdefault(path, []).append(index)
    for path, own in of_path.items():
        counts = count(_picked(rows, own))
        for context in path.contexts:
            add(context.changing().counts, counts)
    groups = _groups(of_path)
    stakes: Stakes = gain, cost
    incomplete = min(gain) <= 0.0 or min(cost) <= 0.0
    if (incomplete or not weights.neutral) and any(map(_reads_stakes, groups)):
        stakes = _filled_in(paths, correct, stakes, weights)
    else:
        for _policy, learning in groups:
            for context, indexes in learning:
                _average(context, indexes, correct, stakes)
    run = Columns(confidence, correct, *stakes)
    for policy, learning in groups:
        for context, indexes in learning:
            numbers = context.changing()
            numbers.at = max(numbers.at, *_picked(at, indexes))
        _teach(policy, learning, run)


def _groups(of_path: Mapping[ContextPath, Sequence[int]]) -> list[tuple[Policy, Learning]]:
    """Return, by policy, which contexts learn which outcomes, given the indexes of each path's."""
    found: dict[str, tuple[Policy, dict[Context, list[Sequence[int]]]]] = {}
    for path, indexes in of_path.items():
        for policy, contexts in path.groups:
            _, learning = found.setdefault(contexts[0].learner, (policy, {}))
            for context in contexts:
                learning.setdefault(context, []).append(indexes)
    return [
        (policy, [(each, _merged(parts)) for each, parts in learning.items()])
        for policy, learning in found.values()
    ]


def _merged(parts: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return the indexes of several paths in order."""
    return parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))


def _picked(column: Sequence[Any], indexes: Sequence[int]) -> Sequence[Any]:
    """Return the elements at indexes, in order."""
    if len(indexes) == len(column):
        return column
    if len(indexes) == 1:
        return (column[indexes[0]],)
    picked: Sequence[Any] = itemgetter(*indexes)(column)
    return picked


def _teach(policy: Policy, learning: Learning, run: Columns) -> None:
    """Let the contexts of one policy learn their outcomes."""
    if isinstance(policy, HierarchicalPolicy):
        parts = [Part(each.numbers.state, indexes) for each, indexes in learning]
        states = policy.learn_run(parts, run)
        for (context, _indexes), state in zip(learning, states, strict=True):
            context.changing().state = state
        return
    assert isinstance(policy, IndependentPolicy), "a policy is one or the other"
    outcomes = () if policy.columns else list(map(_outcome, *run))
    for context, indexes in learning:
        own = Run(
            _picked(outcomes, indexes) if outcomes else (),
            _picked(run.confidence, indexes),
            _picked(run.correct, indexes),
        )
        numbers = context.changing()
        numbers.state, _before = policy.course(numbers.state, own, with_thresholds=False)


def _outcome(confidence: float, correct: bool, gain: float, cost: float) -> Outcome:
    return Outcome(confidence, correct, gain=gain, cost=cost)


def _reads_stakes(group: tuple[Policy, Learning]) -> bool:
    policy = group[0]
    return not (isinstance(policy, IndependentPolicy) and policy.columns)


def _filled_in(
    paths: Sequence[ContextPath], correct: Sequence[bool], stakes: Stakes, weights: Objectives
) -> Stakes:
    """Return the gains and costs to learn from, and update the averages of the contexts.

    Where an outcome lacks one, the average of its finest context that has one takes its place.
    """
    gains, costs = list[float](), list[float]()
    for index, (path, own_gain, own_cost) in enumerate(zip(paths, *stakes, strict=True)):
        gain, cost = own_gain, own_cost
        if gain <= 0.0:
            gain = next((n.gain for n in _fine_to_coarse(path) if n.gain), 0.0)
        if cost <= 0.0:
            cost = next((n.cost for n in _fine_to_coarse(path) if n.cost), 0.0)
        gain, cost = weights.weighed(gain, cost)
        gains.append(gain)
        costs.append(cost)
        for context in path.contexts:
            _average(context, (index,), correct, stakes)
    return gains, costs


def _fine_to_coarse(path: ContextPath) -> Iterator[ContextNumbers]:
    return (context.numbers for context in reversed(path.contexts))


def _average(
    context: Context, indexes: Sequence[int], correct: Sequence[bool], stakes: Stakes
) -> None:
    """Update a context's moving averages of what hits gained and misses cost."""
    gains, costs = stakes
    gain, cost = context.numbers.gain, context.numbers.cost
    if gains.count(gain) == len(gains) and costs.count(cost) == len(costs):
        return  # often the same values come again and again
    for index in indexes:
        if correct[index]:
            gain = moving_average(gain, gains[index], STAKES_RATE)
        else:
            cost = moving_average(cost, costs[index], STAKES_RATE)
    numbers = context.changing()
    numbers.gain, numbers.cost = gain, cost
