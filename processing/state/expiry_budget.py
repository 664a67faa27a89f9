"""Limits how many rows may be deleted at one offset, because they have to fit one commit.

Executors that stop for an hour leave as many open starts as they had, and a commit is never split
within a record. What exceeds the budget is deleted with the next events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from processing.state.chunking import ROW_EXTRA

ENDING_BYTES: Final = 1_500_000
"""Bytes of the rows that delete at one offset, about."""


class ExpiryBudget:
    """The bytes left for deletions at the present offset."""

    def __init__(self) -> None:
        self._offset = -1
        self._left = 0

    def at(self, offset: int) -> ExpiryBudget:
        """Return this budget for an offset; it is full again at each new offset."""
        if offset != self._offset:
            self._offset, self._left = offset, ENDING_BYTES
        return self

    def __bool__(self) -> bool:
        return self._left > 0

    def take(self, key_bytes: int) -> None:
        """Spend the bytes of a row that deletes a key."""
        self._left -= key_bytes + ROW_EXTRA

    def limited(self, keys: Iterator[bytes]) -> Iterator[bytes]:
        """Yield keys to delete until this offset's budget is used up."""
        while self and (key := next(keys, None)) is not None:
            self.take(len(key))
            yield key
