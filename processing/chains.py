"""A context in memory, and the chain of contexts of one outcome. Not here: what learns in them."""

from __future__ import annotations

from collections.abc import Sequence

from learners.policy import Policy, State, Thresholds, spec
from processing.answers import read_state
from processing.rows import ContextRow, context_key
from processing.tally import empty, restored


class Context:
    """One context: its learner's state and what was counted."""

    __slots__ = (
        "at", "chain", "cost", "counts", "gain", "key", "learner", "offset", "path", "policy",
        "served", "state", "tenant",
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
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Have another policy learn here."""
        self.policy, self.learner = policy, spec(policy)


class Chain:
    """The contexts of an outcome, and what was counted of them since the last `drain`.

    `groups`: coarse to fine, by the policy that learns in them: nearly always one. Those of one
    policy are a chain of their own, because another's states say nothing to it.
    """

    __slots__ = ("contexts", "counts", "groups", "place")

    def __init__(
        self,
        place: tuple[str | None, ...],
        contexts: Sequence[Context],
        groups: Sequence[tuple[Policy, Sequence[Context]]],
    ) -> None:
        self.place, self.contexts, self.groups = place, tuple(contexts), groups
        self.counts: list[int] | None = None


def restore_context(context: Context, row: ContextRow) -> None:
    """Give a context what its row holds; the state only where it can be read."""
    context.counts = restored(row.outcomes, row.speculated, row.hits, row.counts)
    context.gain, context.cost = row.gain, row.cost
    context.at, context.offset = row.at, row.offset
    if (read := read_state(row)) is not None:
        policy, context.state = read
        context.follow(policy)
        context.served = policy.thresholds(context.state)
