"""Outcomes that contexts were told of and learn from later: many at once, when somebody looks.

Contexts of one workflow type wait together, because a finer one reads what a coarser one knew
then; no other's state follows from theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain as chained
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
"""Contexts of one policy, coarse before fine, and the places of the outcomes that each learns
from."""


class PendingUpdates:
    """What the contexts of a partition have yet to learn, and to count."""

    def __init__(self, weights: Objectives) -> None:
        self._weights = weights
        self._waiting: list[list[OutcomeRow]] = []

    def expect(self, lessons: list[OutcomeRow]) -> None:
        """Look after what the contexts of a workflow type are told, of which there is none yet."""
        self._waiting.append(lessons)

    def apply_pending(self) -> None:
        """Have contexts learn what is left, which mostly is nothing."""
        if self._waiting:
            apply_pending((self,))

    def _hand_over(self, together: dict[Policy, list[OutcomeRow]], compiled: Any) -> None:
        """Have contexts learn what is left, save what compiled code is to teach: add that."""
        for lessons in self._waiting:
            policy = None if compiled is None else only_policy([each[-1] for each in lessons])
            if policy is None or compiled.rule_of(policy) is None:
                _learn(lessons, self._weights)
            else:
                together.setdefault(policy, []).extend(lessons)
            lessons.clear()
        self._waiting.clear()


def apply_pending(several: Sequence[PendingUpdates]) -> None:
    """Have the contexts of several partitions learn what is left: a call costs as much as ten."""
    compiled, together = kernels(), dict[Policy, list[OutcomeRow]]()
    for each in several:
        each._hand_over(together, compiled)
    for policy, told in together.items():
        update_from_rows(compiled.rule_of(policy), several[0]._weights, told, compiled)


def _learn(lessons: Sequence[OutcomeRow], weights: Objectives) -> None:
    """Have the contexts of one workflow type learn from outcomes, in order, and count them."""
    confidence, gain, cost, _, at, flags, chains = zip(*lessons, strict=True)
    correct = [flag & CORRECT > 0 for flag in flags]
    of_chain: dict[ContextPath, list[int]] = {}
    for place, chain in enumerate(chains):
        of_chain.setdefault(chain, []).append(place)
    for chain, own in of_chain.items():
        counts = count(_picked(lessons, own))
        for context in chain.contexts:
            add(context.changing().counts, counts)
    groups = _groups(of_chain)
    stakes: Stakes = gain, cost
    unsaid = min(gain) <= 0.0 or min(cost) <= 0.0
    if (unsaid or not weights.neutral) and any(map(_reads_stakes, groups)):
        stakes = _filled_in(chains, correct, stakes, weights)
    else:
        for _policy, learning in groups:
            for context, places in learning:
                _average(context, places, correct, stakes)
    run = Columns(confidence, correct, *stakes)
    for policy, learning in groups:
        for context, places in learning:
            numbers = context.changing()
            numbers.at = max(numbers.at, *_picked(at, places))
        _teach(policy, learning, run)


def _groups(of_chain: Mapping[ContextPath, Sequence[int]]) -> list[tuple[Policy, Learning]]:
    """Return who learns what, by policy, of outcomes that stand at places of their chains."""
    found: dict[str, tuple[Policy, dict[Context, list[Sequence[int]]]]] = {}
    for chain, places in of_chain.items():
        for policy, contexts in chain.groups:
            _, learning = found.setdefault(contexts[0].learner, (policy, {}))
            for context in contexts:
                learning.setdefault(context, []).append(places)
    return [
        (policy, [(each, _merged(parts)) for each, parts in learning.items()])
        for policy, learning in found.values()
    ]


def _merged(parts: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return places of several chains in order."""
    return parts[0] if len(parts) == 1 else sorted(chained.from_iterable(parts))


def _picked(column: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    """Return what stands at places in order."""
    if len(places) == len(column):
        return column
    if len(places) == 1:
        return (column[places[0]],)
    picked: Sequence[Any] = itemgetter(*places)(column)
    return picked


def _teach(policy: Policy, learning: Learning, run: Columns) -> None:
    """Have contexts learn from those outcomes that are theirs."""
    if isinstance(policy, HierarchicalPolicy):
        parts = [Part(each.numbers.state, places) for each, places in learning]
        states = policy.learn_run(parts, run)
        for (context, _places), state in zip(learning, states, strict=True):
            context.changing().state = state
        return
    assert isinstance(policy, IndependentPolicy), "a policy is the one or the other"
    outcomes = () if policy.columns else list(map(_outcome, *run))
    for context, places in learning:
        own = Run(
            _picked(outcomes, places) if outcomes else (),
            _picked(run.confidence, places),
            _picked(run.correct, places),
        )
        numbers = context.changing()
        numbers.state, _before = policy.course(numbers.state, own, told=False)


def _outcome(confidence: float, correct: bool, gain: float, cost: float) -> Outcome:
    return Outcome(confidence, correct, gain=gain, cost=cost)


def _reads_stakes(group: tuple[Policy, Learning]) -> bool:
    policy = group[0]
    return not (isinstance(policy, IndependentPolicy) and policy.columns)


def _filled_in(
    chains: Sequence[ContextPath], correct: Sequence[bool], stakes: Stakes, weights: Objectives
) -> Stakes:
    """Return the gains and costs to learn from; the contexts take in what the outcomes say.

    What one does not say the finest of its contexts knows that has seen any by then.
    """
    gains, costs = list[float](), list[float]()
    for place, (chain, said_gain, said_cost) in enumerate(zip(chains, *stakes, strict=True)):
        gain, cost = said_gain, said_cost
        if gain <= 0.0:
            gain = next((n.gain for n in _fine_to_coarse(chain) if n.gain), 0.0)
        if cost <= 0.0:
            cost = next((n.cost for n in _fine_to_coarse(chain) if n.cost), 0.0)
        gain, cost = weights.weighed(gain, cost)
        gains.append(gain)
        costs.append(cost)
        for context in chain.contexts:
            _average(context, (place,), correct, stakes)
    return gains, costs


def _fine_to_coarse(chain: ContextPath) -> Iterator[ContextNumbers]:
    return (context.numbers for context in reversed(chain.contexts))


def _average(
    context: Context, places: Sequence[int], correct: Sequence[bool], stakes: Stakes
) -> None:
    """Have a context's averages take in what hits gained and misses cost."""
    gains, costs = stakes
    gain, cost = context.numbers.gain, context.numbers.cost
    if gains.count(gain) == len(gains) and costs.count(cost) == len(costs):
        return  # often they are the same again and again
    for place in places:
        if correct[place]:
            gain = moving_average(gain, gains[place], STAKES_RATE)
        else:
            cost = moving_average(cost, costs[place], STAKES_RATE)
    numbers = context.changing()
    numbers.gain, numbers.cost = gain, cost
