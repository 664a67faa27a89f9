"""Tables with a limit, that evict what was set longest ago."""

from __future__ import annotations

from itertools import islice
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class RecentTable(Generic[Value]):
    """A table of two generations: once the young one is full, it takes the place of the old one.

    `limit` is the number of entries, or their total weight.

    So what was set again lately stays. Unlike a dict from which the oldest keys are deleted, both
    dicts only grow, which keeps them at half the memory.
    """

    __slots__ = ("half", "old", "weight", "young")

    def __init__(self, limit: int) -> None:
        self.half = limit // 2
        self.weight = 0
        self.young: dict[int, Value] = {}
        self.old: dict[int, Value] = {}

    def get(self, key: int) -> Value | None:
        """Return the value of a key, or None."""
        value = self.young.get(key)
        return self.old.get(key) if value is None else value

    def set(self, key: int, value: Value, weight: int = 1) -> None:
        """Set the value of a key; evict the old generation once the young one's weight is half."""
        if key not in self.young:
            self.weight += weight
        self.young[key] = value
        if self.weight >= self.half:
            self.old = self.young
            self.young = {}
            self.weight = 0

    def __len__(self) -> int:
        return len(self.young) + len(self.old)


def evict_oldest(table: dict[Any, Any], limit: int) -> None:
    """Evict the oldest sixteenth of a dict once it is larger than `limit`.

    Many at a time, because deleting only the first key of a dict leaves gaps that each further
    deletion has to step over.
    """
    if len(table) > limit:
        for key in list(islice(table, len(table) - limit + limit // 16)):
            del table[key]
