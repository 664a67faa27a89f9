"""Detects notices in the batches of the history worker, in the batch's own transaction.

Notices are a function of the preceding records (`processing.notices`). The offset in Postgres shows
which those are: another worker may have stored some of a batch meanwhile, and a commit whose answer
was lost may have taken effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from psycopg import AsyncConnection

from processing.notices import (
    DetectedNotices,
    Key,
    NoticeState,
    decode_state,
    needed,
    take,
    watchable,
)
from processing.records.sink_lines import SinkBatch
from sinks.postgres.notices import (
    NoticeRetention,
    add_notices,
    keep_states,
    lock_offsets,
    newest_values,
)
from topics.catalogue import HISTORY_GROUP, THRESHOLDS
from topics.schema.json_schema import PublishedThreshold

CACHE_LIMIT: Final = 100_000
"""Contexts whose state is kept in memory, about 1 kB each."""

_decode = msgspec.json.Decoder(PublishedThreshold).decode


class NoticeDetector:
    """The states of contexts whose thresholds are stored here: a cache over Postgres."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._known: dict[Key, NoticeState] = {}
        self._stored: dict[int, int] = {}
        """By partition, the offset up to which this process has stored or read everything."""

    def clear(self) -> None:
        """Drop the cache: other partitions may be assigned."""
        self._known.clear()
        self._stored.clear()

    def of_batch(self, unpacked: SinkBatch, offsets: Mapping[int, int]) -> BatchNotices:
        """Return the notices of a batch that is about to be stored; `offsets` come after it."""
        return BatchNotices(self, unpacked, offsets)

    async def add(
        self, unpacked: SinkBatch, offsets: Mapping[int, int], connection: AsyncConnection[Any]
    ) -> tuple[DetectedNotices, int]:
        """Add the notices of a batch to its transaction; return them, and how many are new."""
        stored = await lock_offsets(
            connection, HISTORY_GROUP, THRESHOLDS.name, self._epoch, offsets
        )
        if any(self._stored.get(partition, -1) != offset for partition, offset in stored.items()):
            self._known.clear()
            self._stored |= stored
        values = _values(unpacked, stored)
        await self._load(values, connection)
        found = take(values, self._known)
        kept = {
            key: None if state is None else NoticeRetention(*found.known[key][:2], state)
            for key, state in found.changed.items()
        }
        if kept:
            await keep_states(connection, kept)
        return found, await add_notices(connection, found.notices)

    async def _load(
        self, values: list[tuple[int, PublishedThreshold]], connection: AsyncConnection[Any]
    ) -> None:
        if len(self._known) > CACHE_LIMIT:
            self._known.clear()
        # Not a difference of sets: with keys of a dictionary it takes all of those each time.
        missing = {each for each in needed(values) if each not in self._known}
        if not missing:
            return
        for key, row in (await newest_values(connection, missing)).items():
            state = decode_state(row.state)
            if row.epoch is None or row.offset is None or row.outcomes is None:
                self._known[key] = NoticeState(state=state)
            else:
                self._known[key] = NoticeState(row.epoch, row.offset, row.outcomes, state)

    def committed(self, found: DetectedNotices, offsets: Mapping[int, int]) -> None:
        """Take over what a transaction has stored."""
        self._known |= found.known
        for partition, offset in offsets.items():
            self._stored[partition] = max(self._stored.get(partition, 0), offset)


class BatchNotices:
    """The notices of one batch, added to its transaction, perhaps more than once."""

    def __init__(
        self, detector: NoticeDetector, unpacked: SinkBatch, offsets: Mapping[int, int]
    ) -> None:
        self._detector, self._unpacked, self._offsets = detector, unpacked, offsets
        self._found, self._new = DetectedNotices(), 0

    async def add(self, connection: AsyncConnection[Any]) -> None:
        """Find the notices, and add them to the transaction that is open."""
        self._found, self._new = DetectedNotices(), 0
        self._found, self._new = await self._detector.add(self._unpacked, self._offsets, connection)

    def committed(self) -> int:
        """Take over what the transaction has stored; return how many notices were new."""
        self._detector.committed(self._found, self._offsets)
        return self._new


def _values(unpacked: SinkBatch, stored: Mapping[int, int]) -> list[tuple[int, PublishedThreshold]]:
    """Return the values that are not stored yet and can be watched, with their partitions."""
    values = []
    for record, (batch, position) in zip(unpacked.records, unpacked.sources, strict=True):
        if batch.offsets[position] >= stored.get(batch.partition, 0):
            value = _decode(record)  # `encode_threshold` could
            if watchable(value):
                values.append((batch.partition, value))
    return values
