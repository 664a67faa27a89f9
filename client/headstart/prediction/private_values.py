"""Values of users' calls, kept in the executor: constants, skeletons and whole calls.

The model has their hashes only. A constant or a skeleton is given to a user who wrote it, and to
others once it was written by three users; a whole call is found only with its user's own hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from headstart.prediction.bounded_tables import RecentTable
from headstart.prediction.history.skeletons import Skeleton
from headstart.prediction.stable_hash import combined

LONGEST_CONSTANT: Final = 200  # characters
_CONSTANTS_SIZE, _SKELETONS_SIZE, _CALLS_SIZE = 180_000, 280_000, 240_000  # bytes, about
_OVERHEAD: Final = 110  # bytes of an entry of a table
_LONGEST_CALL: Final = 500  # bytes as JSON
_MISSING: Final = object()

Value = TypeVar("Value")
Default = TypeVar("Default")


class SharedValues(Generic[Value]):
    """Values by hash, each with the users that wrote it, or None once they were three."""

    def __init__(self, limit: int) -> None:
        self.table: RecentTable[tuple[Value, int | tuple[int, int] | None]] = RecentTable(limit)

    def get(self, identity: int, user: int, default: Default) -> Value | Default:
        """Return a value if this user may have it, else `default`."""
        entry = self.table.get(identity)
        if entry is None:
            return default
        value, writers = entry
        if writers is None or writers == user:
            return value
        return value if isinstance(writers, tuple) and user in writers else default

    def write(self, identity: int, value: Value, user: int, size: int) -> Value:
        """Add a value, of `size` bytes, that a user wrote; return the object that is kept."""
        entry = self.table.get(identity)
        if entry is None:
            entry = value, user
        else:
            value, writers = entry
            if isinstance(writers, int) and writers != user:
                entry = value, (writers, user)
            elif isinstance(writers, tuple) and user not in writers:
                entry = value, None
        self.table.set(identity, entry, size + _OVERHEAD)
        return value

    def give_to_all(self, identity: int, value: Value, size: int) -> None:
        """Add a value that everyone may have."""
        entry = self.table.get(identity)
        if entry is None or entry[1] is not None:
            self.table.set(identity, (value if entry is None else entry[0], None), size + _OVERHEAD)


def size_of(value: object) -> int:
    """Return about how many bytes of memory a constant takes."""
    return 4 * len(value) if isinstance(value, str) else 32


class PrivateValues:
    """The values of one executor."""

    def __init__(self) -> None:
        self.constants: SharedValues[object] = SharedValues(_CONSTANTS_SIZE)
        self.skeletons: SharedValues[Skeleton] = SharedValues(_SKELETONS_SIZE)
        self.calls: RecentTable[bytes] = RecentTable(_CALLS_SIZE)
        self.known_calls: Mapping[int, tuple[int, ...]] = {}
        """Whole calls of other executors: hashes of the skeleton and of each leaf's value."""

    def take_shared(
        self,
        constants: Mapping[int, object],
        skeletons: Mapping[int, Skeleton],
        calls: Mapping[int, tuple[int, ...]],
    ) -> None:
        """Add what three writers wrote at any executors, and the make-up of their calls."""
        for identity, value in constants.items():
            self.constants.give_to_all(identity, value, size_of(value))
        for identity, skeleton in skeletons.items():
            self.skeletons.give_to_all(identity, skeleton, skeleton.size)
        self.known_calls = calls

    def replace(self, other: PrivateValues) -> None:
        """Go on with the values of another object."""
        self.constants, self.skeletons = other.constants, other.skeletons
        self.calls, self.known_calls = other.calls, other.known_calls

    def remember(self, call: int, skeleton: Skeleton, values: Sequence[object]) -> None:
        """Keep a whole call by its hash, which is keyed by the user."""
        known = self.calls.get(call)
        if known is None:
            known = json.dumps([skeleton.identity, *values]).encode()
        if len(known) <= _LONGEST_CALL:
            self.calls.set(call, known, len(known) + _OVERHEAD)

    def remembered(self, call: int, user: int) -> tuple[Skeleton, tuple[object, ...]] | None:
        """Return the skeleton and values of a whole call of a user."""
        text = self.calls.get(call)
        if text is None:
            return self._put_together(call, user)
        identity, *values = json.loads(text)
        entry = self.skeletons.table.get(identity)
        return (entry[0], tuple(values)) if entry else None

    def _put_together(self, call: int, user: int) -> tuple[Skeleton, tuple[object, ...]] | None:
        """Return a whole call that this executor has not seen, if the user may have its values."""
        identity, *constants = self.known_calls.get(call, (0,))
        skeleton: Skeleton | None = self.skeletons.get(identity, user, None)
        if skeleton is None:
            return None
        values, hashed, place = [], combined(user, identity), 0
        for leaf in skeleton.leaves:
            constant = constants[place] if place < len(constants) else 0
            value = self.constants.get(constant, user, _MISSING)
            if value is _MISSING:
                return None
            values.append(value)
            hashed = combined(hashed, constant)
            place += 1 if leaf.exact == leaf.any_index else 2
        return (skeleton, tuple(values)) if hashed == call else None
