"""From where partitions are read that have no offset yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from faust.types import TP


class HasEarliest(Protocol):
    """What knows where the log begins: Faust's consumer."""

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Return the first offset that the broker has of each partition."""
        ...


async def with_earliest(begin: Mapping[TP, int], consumer: HasEarliest) -> dict[TP, int]:
    """Return `begin`, with the first offset of the log for each partition whose offset is 0."""
    unread = [tp for tp, offset in begin.items() if not offset]
    earliest = await consumer.earliest_offsets(*unread) if unread else {}
    return {**begin, **{tp: earliest.get(tp, 0) for tp in unread}}
