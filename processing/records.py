"""What a fetch gives an agent: the records of one partition, raw, in one message."""

from __future__ import annotations

from bisect import bisect_left

import msgspec


class RecordBatch(msgspec.Struct, gc=False):
    """Consecutive records of one partition, as parallel lists.

    `begin` is the position that was fetched from and `end` the next one to fetch: between them
    there may be holes (compaction, transaction markers), which are no loss.
    """

    topic: str
    partition: int
    begin: int
    end: int
    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]

    @property
    def size(self) -> int:
        """Bytes of all values together."""
        return sum(map(len, filter(None, self.values)))

    @property
    def offset(self) -> int:
        """Offset of the first record (Faust reads it as the message's)."""
        return self.offsets[0]

    def drop_before(self, offset: int) -> None:
        """Forget the records below `offset`."""
        count = bisect_left(self.offsets, offset)
        for of_each in (self.offsets, self.timestamps, self.keys, self.values):
            del of_each[:count]
        self.begin = max(self.begin, offset)

    def __len__(self) -> int:
        return len(self.offsets)
