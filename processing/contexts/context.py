"""A context in memory, and the path of contexts of one outcome."""

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
    """One context: its learner's state and its counters.

    Its numbers are held as an object, as packed words, or both: kernels change the words, all else
    the object. `pending`, of a workflow type's context only: outcomes that it and those below it
    have yet to learn.
    """

    __slots__ = (
        "_answer", "_numbers", "_packed", "learner", "offset", "path", "path_key", "pending",
        "policy", "published", "row_key", "tenant",
    )  # fmt: skip

    def __init__(self, tenant: str, path: str, policy: Policy, state: State) -> None:
        self.row_key = context_key(tenant, path)
        self.tenant, self.path = tenant, path
        self._numbers: ContextNumbers | None = ContextNumbers(state)
        self._packed: bytes | None = None
        self._answer: ThresholdPair | None = None
        self.offset = -1
        self.published: ThresholdPair | None = None
        """Thresholds of the last commit."""
        self.path_key: ContextKey | None = None
        """Of the path that ends here; the path itself would make a reference cycle."""
        self.pending: list[OutcomeRow] = []
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Let another policy learn here."""
        self.policy, self.learner = policy, spec(policy)
        self.changing()

    @property
    def numbers(self) -> ContextNumbers:
        """State and counters, to be read only."""
        if self._numbers is None:
            assert self._packed is not None, "numbers exist as an object or packed"
            self._numbers, self._answer = unpacked(self._packed)
        return self._numbers

    def changing(self) -> ContextNumbers:
        """Return the numbers, to be changed."""
        numbers = self.numbers
        self._packed = self._answer = None
        return numbers

    def packed(self) -> bytes:
        """Return the numbers as words."""
        if self._packed is None:
            self._packed = self.numbers.packed(self.thresholds())
        return self._packed

    def pack(self, words: bytes) -> None:
        """Replace the numbers."""
        self._packed, self._numbers, self._answer = words, None, None

    def thresholds(self) -> ThresholdPair:
        """Return the thresholds that the policy derives from the state."""
        state = self.numbers.state
        if self._answer is None:
            self._answer = self.policy.thresholds(state)
        return self._answer

    def row(self, epoch: int) -> bytes:
        """Return the row of the table."""
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

    def restore(self, row: ContextRow) -> None:
        """Restore the context from its row; the state only if this version can read it."""
        numbers = self.changing()
        numbers.counts = restored(row.outcomes, row.speculated, row.hits, row.counts)
        numbers.gain, numbers.cost, numbers.at = row.gain, row.cost, row.at
        self.offset = row.offset
        if (read := read_state(row)) is not None:
            policy, numbers.state = read
            self.follow(policy)
            self.published = self.thresholds()

    def state_for(self, policy: Policy) -> State | None:
        """Return the state as another policy continues with it; None where it cannot.

        The state of another learner means nothing to it.
        """
        if self.policy.name != policy.name:
            return None
        return policy.migrated(self.policy.version, self.numbers.state)


class ContextPath:
    """The contexts of an outcome, coarse to fine, and what changed since the last `drain`.

    `groups`: the contexts by the policy that learns in them, nearly always one; each group is a
    hierarchy of its own, because a policy cannot read another's states. `pending`: that of the
    coarsest context. `key_bytes`: of the row keys of all.

    Since the last `drain`: whether it was `touched`, and its last `offset`.
    """

    __slots__ = ("contexts", "groups", "key", "key_bytes", "offset", "pending", "touched")

    def __init__(
        self,
        key: ContextKey,
        contexts: Sequence[Context],
        groups: Sequence[tuple[Policy, Sequence[Context]]],
    ) -> None:
        self.key, self.contexts, self.groups = key, tuple(contexts), groups
        self.pending = contexts[0].pending
        self.key_bytes = sum(len(each.row_key) for each in contexts)
        self.touched, self.offset = False, -1

    def drained(self) -> None:
        """Set the last offset in every context, and start over."""
        for context in self.contexts:
            if self.offset > context.offset:
                context.offset = self.offset
        self.touched, self.offset = False, -1


@contextmanager
def without_learning(contexts: Sequence[Context]) -> Iterator[None]:
    """Undo what contexts learn meanwhile, except their counters."""
    before = [(each.numbers.state, each.numbers.gain, each.numbers.cost) for each in contexts]
    yield
    for context, kept in zip(contexts, before, strict=True):
        numbers = context.changing()
        numbers.state, numbers.gain, numbers.cost = kept
