"""A context in memory, and the chain of contexts of one outcome.

Not here: which contexts there are, which policy learns in them, and how (`lessons`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import add as plus

from learners.policy import Policy, State, Thresholds, spec
from processing.answers import read_state
from processing.places import Place
from processing.rows import ContextRow, context_key
from processing.spools import Seen
from processing.tally import Told, add, count, empty, restored


class Context:
    """One context: its learner's state and what was counted.

    `lessons`: of a coarsest one, what it and those below it have yet to learn from.
    """

    __slots__ = (
        "at", "chain", "cost", "counts", "gain", "key", "learner", "lessons", "offset", "path",
        "policy", "served", "state", "tenant",
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
        self.lessons: list[Told] = []
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Have another policy learn here."""
        self.policy, self.learner = policy, spec(policy)


class Chain:
    """The contexts of an outcome, and what came to them since the last `drain`.

    `groups`: coarse to fine, by the policy that learns in them: nearly always one. Those of one
    policy are a chain of their own, because another's states say nothing to it.
    `lessons`: those of the coarsest context.

    Since the last `drain`: whether it was `touched`, at which `offset` last; the outcomes that it
    was `told`, and what else it `counts`; the positions that were `seen` of its spools.
    """

    __slots__ = (
        "contexts", "counts", "groups", "lessons", "offset", "place", "seen", "told", "touched",
    )  # fmt: skip

    def __init__(
        self,
        place: Place,
        contexts: Sequence[Context],
        groups: Sequence[tuple[Policy, Sequence[Context]]],
    ) -> None:
        self.place, self.contexts, self.groups = place, tuple(contexts), groups
        self.lessons = contexts[0].lessons
        self.touched, self.offset = False, -1
        self.told: list[Told] = []
        self.counts = empty()
        self.seen: dict[str, Seen] = {}

    def add(self, counts: Sequence[int]) -> None:
        """Count what was told elsewhere."""
        self.counts = list(map(plus, self.counts, counts))

    def add_up(self) -> None:
        """Give every context what came since the last `drain`, and begin anew."""
        count(self.counts, self.told)
        for context in self.contexts:
            add(context.counts, self.counts)
            if self.offset > context.offset:
                context.offset = self.offset
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


def restore_context(context: Context, row: ContextRow) -> None:
    """Give a context what its row holds; the state only where it can be read."""
    context.counts = restored(row.outcomes, row.speculated, row.hits, row.counts)
    context.gain, context.cost = row.gain, row.cost
    context.at, context.offset = row.at, row.offset
    if (read := read_state(row)) is not None:
        policy, context.state = read
        context.follow(policy)
        context.served = policy.thresholds(context.state)
