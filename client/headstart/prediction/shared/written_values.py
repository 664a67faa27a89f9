"""Which writers wrote a value, by hash; and the values that three of them have written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headstart.prediction.bounded_tables import RecentTable
from headstart.prediction.state_format import read_table, table_parts, tuple_of

WRITERS: Final = 3
"""A value is shared once so many have written it."""
_OVERHEAD: Final = 60  # bytes of an entry


class WrittenValues:
    """Hashes with their writers, at most three each, and texts of those that are shareable."""

    def __init__(self, most_hashes: int, texts_size: int) -> None:
        self.writers: RecentTable[int | tuple[int, ...]] = RecentTable(most_hashes)
        """One writer, or two; no writers once there were three."""
        self.texts: RecentTable[str] = RecentTable(texts_size)

    def write(self, identity: int, writer: int) -> None:
        """Count a writer of a value."""
        known = self.writers.get(identity)
        if known is None:
            known = writer
        elif isinstance(known, int):
            known = known if known == writer else (known, writer)
        elif known and writer not in known:
            known = ()
        self.writers.set(identity, known)
        text = self.texts.old.get(identity)
        if text is not None and identity not in self.texts.young:
            self._set(identity, text)  # as what is used stays

    def is_shareable(self, identity: int) -> bool:
        """Return whether three writers have written a value."""
        return self.writers.get(identity) == ()

    def add(self, identity: int, text: str) -> bool:
        """Keep the text of a shareable value; return False if it is not, or has one.

        The first text stays: its hash was checked.
        """
        if not self.is_shareable(identity) or self.texts.get(identity) is not None:
            return False
        self._set(identity, text)
        return True

    def wanted(self, identities: Iterable[int]) -> list[int]:
        """Return the shareable ones of some hashes of which the text is missing."""
        found = [each for each in dict.fromkeys(identities) if self.is_shareable(each)]
        return [each for each in found if self.texts.get(each) is None]

    def known(self) -> dict[int, str]:
        """Return the texts of all values that are shared, the oldest first."""
        texts = self.texts.old | self.texts.young
        return {each: text for each, text in texts.items() if self.is_shareable(each)}

    def parts(self) -> list[Any]:
        """Return the state, for JSON."""
        return [table_parts(self.writers), table_parts(self.texts)]

    def read(self, parts: list[Any]) -> None:
        """Put back what `parts()` gave."""
        writers, texts = parts
        read_table(self.writers, writers, tuple_of)
        read_table(self.texts, texts, str)

    def _set(self, identity: int, text: str) -> None:
        self.texts.set(identity, text, len(text.encode()) + _OVERHEAD)
