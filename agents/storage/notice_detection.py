"""The history worker looks at what it stores: beside each batch, in its transaction, the notices.

What is found is a function of the records that went before (`processing.notices`). The offset that
Postgres holds says which those are: another worker may have stored some of a batch meanwhile, and a
commit whose answer was lost may have taken effect.
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
"""Most contexts of which it is kept in memory what is known, about 1 kB each."""

_decode = msgspec.json.Decoder(PublishedThreshold).decode


class NoticeDetector:
    """What is known of the contexts whose thresholds are stored here: a cache over Postgres."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._known: dict[Key, NoticeState] = {}
        self._stored: dict[int, int] = {}
        """By partition the offset up to which this process has seen everything stored."""
        self._found = DetectedNotices()
        self.found = 0
        """Notices that were new in the last batch."""

    def forget(self) -> None:
        """Know nothing: partitions are assigned anew."""
        self._known.clear()
        self._stored.clear()

    async def look(
        self, unpacked: SinkBatch, offsets: Mapping[int, int], connection: AsyncConnection[Any]
    ) -> None:
        """Add to a transaction the notices of what it stores. `offsets`: as given to the sink."""
        self.found, self._found = 0, DetectedNotices()
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
        self.found = await add_notices(connection, found.notices)
        self._found = found

    async def _load(
        self, values: list[tuple[int, PublishedThreshold]], connection: AsyncConnection[Any]
    ) -> None:
        if len(self._known) > CACHE_LIMIT:
            self._known.clear()
        missing = needed(values) - self._known.keys()
        if not missing:
            return
        for key, row in (await newest_values(connection, missing)).items():
            state = decode_state(row.state)
            if row.epoch is None or row.offset is None or row.outcomes is None:
                self._known[key] = NoticeState(state=state)
            else:
                self._known[key] = NoticeState(row.epoch, row.offset, row.outcomes, state)

    def committed(self, offsets: Mapping[int, int]) -> None:
        """Take over what the transaction has stored."""
        self._known |= self._found.known
        for partition, offset in offsets.items():
            self._stored[partition] = max(self._stored.get(partition, 0), offset)


def _values(unpacked: SinkBatch, stored: Mapping[int, int]) -> list[tuple[int, PublishedThreshold]]:
    """Return the values that are not stored yet and can be looked at, with their partitions."""
    values = []
    for record, (batch, position) in zip(unpacked.records, unpacked.sources, strict=True):
        if batch.offsets[position] >= stored.get(batch.partition, 0):
            value = _decode(record)  # `encode_threshold` could
            if watchable(value):
                values.append((batch.partition, value))
    return values
