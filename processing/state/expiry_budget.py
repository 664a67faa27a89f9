"""How much may come to its end at one offset: what says so has to fit one commit.

Executors that stand still for an hour leave as many open starts as they had, and a commit is never
cut within a record. What finds no room ends with the next events that move the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from processing.state.chunking import ROW_EXTRA

ENDING_BYTES: Final = 1_500_000
"""Of the rows that say so of what ended at one offset, about."""


class ExpiryBudget:
    """The room that is left at an offset."""

    def __init__(self) -> None:
        self._offset = -1
        self._left = 0

    def at(self, offset: int) -> ExpiryBudget:
        """Return this, for an offset: all of it where another is begun."""
        if offset != self._offset:
            self._offset, self._left = offset, ENDING_BYTES
        return self

    def __bool__(self) -> bool:
        return self._left > 0

    def take(self, key_bytes: int) -> None:
        """Take up the room of a row that says that another is gone."""
        self._left -= key_bytes + ROW_EXTRA

    def limited(self, keys: Iterator[bytes]) -> Iterator[bytes]:
        """Yield keys, each of which comes to its end thereby, while there is room."""
        while self and (key := next(keys, None)) is not None:
            self.take(len(key))
            yield key
