"""Which whole call followed which, by hashes that are keyed by the user."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from headstart.prediction.bounded_tables import RecentTable

_MOST_CONTEXTS, _MOST_FOLLOWERS = 3_000, 8
_LARGEST_COUNT: Final = 60_000
_STRUCTS: Final = [Struct("<" + "QH" * n) for n in range(_MOST_FOLLOWERS + 1)]

NO_CALL: Final = 1
"""What followed was a reply."""


def followers_of(known: int | bytes) -> dict[int, int]:
    """Return the calls in an entry of the table, with how often each followed."""
    if isinstance(known, int):
        return {known: 1}
    flat = _STRUCTS[len(known) // 10].unpack(known)
    return dict(zip(flat[::2], flat[1::2], strict=True))


class CallMemory:
    """A bounded table from the calls before to the counts of the calls that followed."""

    def __init__(self) -> None:
        self.table: RecentTable[int | bytes] = RecentTable(_MOST_CONTEXTS)
        """A context that was followed once has that call's hash; else packed hashes and counts."""

    def followers(self, context: int) -> dict[int, int] | None:
        """Return how often each call followed a context; None if it was never seen."""
        known = self.table.get(context)
        return None if known is None else followers_of(known)

    def learn(self, contexts: Sequence[int], followed: int) -> None:
        """Count what followed."""
        for context in contexts:
            counts = self.followers(context)
            if counts is None:
                self.table.set(context, followed)
                continue
            if followed in counts or len(counts) < _MOST_FOLLOWERS:
                counts[followed] = min(counts.get(followed, 0) + 1, _LARGEST_COUNT)
            flat = [x for pair in counts.items() for x in pair]
            self.table.set(context, _STRUCTS[len(counts)].pack(*flat))
