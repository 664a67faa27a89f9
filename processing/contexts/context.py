"""A context in memory, and the chain of contexts of one outcome.

Not here: which contexts there are, which policy learns in them, and how (`lessons`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from learners.policy import Policy, State, ThresholdPair, spec
from processing.contexts.levels import ContextKey
from processing.contexts.thresholds import read_state
from processing.state.counters import OutcomeRow, restored, stored
from processing.state.packed_state import ContextNumbers, unpacked
from processing.state.rows import ContextRow, context_key, encode_context, encode_packed


class Context:
    """One context: its learner's state and what was counted.

    `lessons`: of a coarsest one, what it and those below it have yet to learn from.
    """

    __slots__ = (
        "_answer", "_numbers", "_packed", "key", "learner", "lessons", "offset", "path", "place",
        "policy", "served", "tenant",
    )  # fmt: skip

    def __init__(self, tenant: str, path: str, policy: Policy, state: State) -> None:
        self.key = context_key(tenant, path)
        self.tenant, self.path = tenant, path
        self._numbers: ContextNumbers | None = ContextNumbers(state)
        self._packed: bytes | None = None
        self._answer: ThresholdPair | None = None
        self.offset = -1
        self.served: ThresholdPair | None = None
        self.place: ContextKey | None = None
        """Of the chain that ends here; the chain itself would make a cycle of all in memory."""
        self.lessons: list[OutcomeRow] = []
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Have another policy learn here."""
        self.policy, self.learner = policy, spec(policy)
        self.changing()

    @property
    def numbers(self) -> ContextNumbers:
        """What was counted and learned, to be read."""
        if self._numbers is None:
            assert self._packed is not None, "it has them one way or the other"
            self._numbers, self._answer = unpacked(self._packed)
        return self._numbers

    def changing(self) -> ContextNumbers:
        """Return the numbers, which are about to change."""
        numbers = self.numbers
        self._packed = self._answer = None
        return numbers

    def packed(self) -> bytes:
        """Return the numbers as words."""
        if self._packed is None:
            self._packed = self.numbers.packed(self.thresholds())
        return self._packed

    def pack(self, words: bytes) -> None:
        """Take other numbers."""
        self._packed, self._numbers, self._answer = words, None, None

    def thresholds(self) -> ThresholdPair:
        """Return what it answers."""
        state = self.numbers.state
        if self._answer is None:
            self._answer = self.policy.thresholds(state)
        return self._answer

    def row(self, epoch: int) -> bytes:
        """Return its row."""
        if self._packed is not None:
            return encode_packed(
                epoch, self.offset, self.learner, self.policy.version, self._packed
            )
        numbers = self.numbers
        outcomes, speculated, hits, rest = stored(numbers.counts)
        return encode_context(
            ContextRow(
                epoch, self.offset, numbers.at, outcomes, speculated, hits, self.policy.version,
                self.learner, numbers.state, numbers.gain, numbers.cost, rest,
            )
        )  # fmt: skip


class ContextPath:
    """The contexts of an outcome, and what came to them since the last `drain`.

    `groups`: coarse to fine, by the policy that learns in them: nearly always one. Those of one
    policy are a chain of their own, because another's states say nothing to it.
    `lessons`: those of the coarsest context. `key_bytes`: of the keys of all.

    Since the last `drain`: whether it was `touched`, and at which `offset` last.
    """

    __slots__ = (
        "contexts", "groups", "key_bytes", "lessons", "offset", "place", "touched",
    )  # fmt: skip

    def __init__(
        self,
        place: ContextKey,
        contexts: Sequence[Context],
        groups: Sequence[tuple[Policy, Sequence[Context]]],
    ) -> None:
        self.place, self.contexts, self.groups = place, tuple(contexts), groups
        self.lessons = contexts[0].lessons
        self.key_bytes = sum(len(each.key) for each in contexts)
        self.touched, self.offset = False, -1

    def drained(self) -> None:
        """Give every context the last offset, and begin anew."""
        for context in self.contexts:
            if self.offset > context.offset:
                context.offset = self.offset
        self.touched, self.offset = False, -1


@contextmanager
def without_learning(contexts: Sequence[Context]) -> Iterator[None]:
    """Have contexts learn nothing of what they are taught meanwhile; it is counted all the same."""
    before = [(each.numbers.state, each.numbers.gain, each.numbers.cost) for each in contexts]
    yield
    for context, kept in zip(contexts, before, strict=True):
        numbers = context.changing()
        numbers.state, numbers.gain, numbers.cost = kept


def restore_context(context: Context, row: ContextRow) -> None:
    """Give a context what its row holds; the state only where it can be read."""
    numbers = context.changing()
    numbers.counts = restored(row.outcomes, row.speculated, row.hits, row.counts)
    numbers.gain, numbers.cost, numbers.at = row.gain, row.cost, row.at
    context.offset = row.offset
    if (read := read_state(row)) is not None:
        policy, numbers.state = read
        context.follow(policy)
        context.served = context.thresholds()


def handed_over(context: Context, policy: Policy) -> State | None:
    """Return a context's state as another policy goes on with it; None where it begins anew.

    Another learner's state means nothing to this one.
    """
    before = context.policy
    if before.name != policy.name:
        return None
    return policy.migrated(before.version, context.numbers.state)
