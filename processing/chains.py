"""A context in memory, the chain of contexts of one outcome, and how these learn.

Not here: which contexts there are, and which policy learns in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import structs

from learners.outcome import Outcome, Run
from learners.policy import Policy, Separate, State, Thresholds, spec
from processing.answers import read_state
from processing.places import Place
from processing.rows import ContextRow, context_key
from processing.rules import Weights
from processing.spools import Seen
from processing.tally import Told, add, count, empty, restored

STAKES_RATE: Final = 0.05
"""Of the moving averages of gain and cost."""


class Context:
    """One context: its learner's state and what was counted.

    `told`: outcomes that it has yet to learn from, all at once.
    """

    __slots__ = (
        "at", "chain", "cost", "counts", "gain", "key", "learner", "offset", "path", "policy",
        "served", "state", "tenant", "told",
    )  # fmt: skip

    def __init__(self, tenant: str, path: str, policy: Policy, state: State) -> None:
        self.key = context_key(tenant, path)
        self.tenant, self.path = tenant, path
        self.state = state
        self.counts = empty()
        self.gain = self.cost = 0.0
        self.at, self.offset = 0, -1
        self.served: Thresholds | None = None
        self.chain: Chain | None = None
        """The chain that ends here."""
        self.told: list[Told] = []
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Have another policy learn here."""
        self.policy, self.learner = policy, spec(policy)

    def catch_up(self) -> None:
        """Learn from what it was told, as if outcome by outcome (`Chain.learn`)."""
        policy = self.policy
        assert isinstance(policy, Separate)
        confidence, correct, _, gains, costs, _, _, at = zip(*self.told, strict=True)
        self.state, _before = policy.course(self.state, Run((), confidence, correct), told=False)
        gain, cost = self.gain, self.cost
        for right, saved, wasted in zip(correct, gains, costs, strict=True):
            if right:
                if saved > 0.0:
                    gain = gain + STAKES_RATE * (saved - gain) if gain else saved
            elif wasted > 0.0:
                cost = cost + STAKES_RATE * (wasted - cost) if cost else wasted
        self.gain, self.cost = gain, cost
        self.at = max(self.at, *at)
        self.told.clear()


class Chain:
    """The contexts of an outcome, and what came to them since the last `drain`.

    `groups`: coarse to fine, by the policy that learns in them: nearly always one. Those of one
    policy are a chain of their own, because another's states say nothing to it. `columns`: whether
    each of its contexts may learn from several outcomes at once (`Separate.columns`).

    Since the last `drain`: whether it was `touched`, at which `offset` last; the outcomes that it
    was `told`, and what else it `counts`; the positions that were `seen` of its spools.
    """

    __slots__ = (
        "columns", "contexts", "counts", "groups", "offset", "place", "seen", "told", "touched",
    )  # fmt: skip

    def __init__(
        self,
        place: Place,
        contexts: Sequence[Context],
        groups: Sequence[tuple[Policy, Sequence[Context]]],
    ) -> None:
        self.place, self.contexts, self.groups = place, tuple(contexts), groups
        self.columns = all(isinstance(each, Separate) and each.columns for each, _ in groups)
        self.touched, self.offset = False, -1
        self.told: list[Told] = []
        self.counts = empty()
        self.seen: dict[str, Seen] = {}

    def learn(self, outcome: Outcome, learned: Outcome) -> None:
        """Learn from one outcome; `learned`: the same with the gain and cost to learn from."""
        correct, at = outcome.correct, outcome.timestamp
        stakes = outcome.gain if correct else outcome.cost
        for policy, contexts in self.groups:
            states = policy.learn([context.state for context in contexts], learned)
            for context, state in zip(contexts, states, strict=True):
                context.state = state
                if at > context.at:
                    context.at = at
                if stakes > 0.0:
                    if correct:
                        known = context.gain
                        context.gain = known + STAKES_RATE * (stakes - known) if known else stakes
                    else:
                        known = context.cost
                        context.cost = known + STAKES_RATE * (stakes - known) if known else stakes

    def add_up(self) -> None:
        """Give every context what came since the last `drain`, and begin anew."""
        count(self.counts, self.told)
        for context in self.contexts:
            add(context.counts, self.counts)
            context.offset = max(context.offset, self.offset)
        self.touched, self.offset = False, -1
        self.told.clear()
        self.counts = empty()
        self.seen.clear()


@contextmanager
def untaught(contexts: Sequence[Context]) -> Iterator[None]:
    """Have contexts learn nothing of what they are taught meanwhile; it is counted all the same."""
    before = [(context.state, context.gain, context.cost) for context in contexts]
    yield
    for context, kept in zip(contexts, before, strict=True):
        context.state, context.gain, context.cost = kept


def with_stakes(contexts: Sequence[Context], outcome: Outcome, weights: Weights) -> Outcome:
    """Return an outcome with the gain and cost to learn from.

    What it does not say of them the finest context knows that has seen any.
    """
    gain, cost = outcome.gain, outcome.cost
    if gain <= 0.0:
        gain = next((each.gain for each in reversed(contexts) if each.gain), 0.0)
    if cost <= 0.0:
        cost = next((each.cost for each in reversed(contexts) if each.cost), 0.0)
    gain, cost = weights.weighed(gain, cost)
    if gain == outcome.gain and cost == outcome.cost:
        return outcome
    return structs.replace(outcome, gain=gain, cost=cost)


def restore_context(context: Context, row: ContextRow) -> None:
    """Give a context what its row holds; the state only where it can be read."""
    context.counts = restored(row.outcomes, row.speculated, row.hits, row.counts)
    context.gain, context.cost = row.gain, row.cost
    context.at, context.offset = row.at, row.offset
    if (read := read_state(row)) is not None:
        policy, context.state = read
        context.follow(policy)
        context.served = policy.thresholds(context.state)
