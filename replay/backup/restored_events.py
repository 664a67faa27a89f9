"""The records that a restored log of events is to have, written to it as a stream.

In memory are one digest for each partition and the records that wait for an acknowledgement,
however long the saved end of the log is.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from replay.backup.saved_records import SavedRecord
from topics.kafka.reader import read_records

_HEAD: Final = struct.Struct("<qqq")


class PrefixDiffers(ValueError):
    """The log has records that are not the first ones of those that it is to have."""


class RestoredEvents:
    """What a log of `partitions` partitions is to have, from offset 0 of each on.

    `records` is called for each pass; it yields the records of a partition in their order.
    `counts` and `stored` are complete when `missing` has ended: records by partition, and how many
    of them the restored tables have, whose first missing offsets in the old log are `held`.
    """

    def __init__(
        self,
        records: Callable[[], Iterable[SavedRecord]],
        partitions: int,
        held: Mapping[int, int],
    ) -> None:
        self._records, self._held = records, held
        self.counts: Counter[int] = Counter()
        self.stored = dict.fromkeys(range(partitions), 0)

    async def require_prefix(
        self, kafka: str, topic: str, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> None:
        """Raise `PrefixDiffers` unless the log's offsets `begin` to `end` are as they are to be.

        By key and value. Raises `BrokerUnreachable` and `LogTruncated`.
        """
        if not any(end.values()):
            return
        found = {number: hashlib.sha256() for number in end}
        wanted = {number: hashlib.sha256() for number in end}
        async for record in read_records(kafka, topic, begin, end):
            _add(found[record.partition], record.offset, record.key, record.value)
        for offset, each in self._numbered():
            if begin[each.partition] <= offset < end[each.partition]:
                _add(wanted[each.partition], offset, each.key, each.value)
        if any(found[number].digest() != wanted[number].digest() for number in end):
            raise PrefixDiffers(topic)

    def missing(self, end: Mapping[int, int]) -> Iterator[SavedRecord]:
        """Yield the records behind the log's end, which is `end` by partition."""
        self.counts.clear()
        self.stored = dict.fromkeys(self.stored, 0)
        for offset, each in self._numbered():
            self.counts[each.partition] += 1
            if 0 <= each.offset < self._held.get(each.partition, 0):
                self.stored[each.partition] += 1
            if offset >= end[each.partition]:
                yield each

    def _numbered(self) -> Iterator[tuple[int, SavedRecord]]:
        """Yield each record with the offset that it gets."""
        reached: Counter[int] = Counter()
        for each in self._records():
            yield reached[each.partition], each
            reached[each.partition] += 1


def _add(digest: Any, offset: int, key: bytes | None, value: bytes | None) -> None:
    lengths = (-1 if part is None else len(part) for part in (key, value))
    digest.update(_HEAD.pack(offset, *lengths))
    digest.update(key or b"")
    digest.update(value or b"")
