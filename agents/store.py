"""The contexts table's local store: RocksDB, written only after the changelog acknowledged.

A row and the changelog offset it came from are written in one WriteBatch, so the local store is
always a prefix of the changelog, never ahead of it. Recovery keeps the row of the higher offset:
a worker that was stopped and woke up may have appended old rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

import faust
import rocksdict
from faust.stores.rocksdb import Store
from faust.types import TP

from processing.rows import stale

CHANGELOG_OFFSET: Final = b"@changelog"
_OFFSET = struct.Struct("<Qq")

ROCKSDB_OPTIONS: Final = {
    # Rows are small and mostly held in memory by the agent: Faust's default would cache 2 GiB.
    "block_cache_size": 8 * 1024 * 1024,
    "write_buffer_size": 16 * 1024 * 1024,
    "max_write_buffer_number": 2,
}


class ContextStore(Store):  # type: ignore[misc]
    """RocksDB store of one table, in one log epoch."""

    epoch: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._overtaken: dict[int, set[bytes]] = {}

    def take_overtaken(self, partition: int) -> set[bytes]:
        """Return the keys whose last row in the changelog, as recovered, is not the right one."""
        return self._overtaken.pop(partition, set())

    def get_row(self, partition: int, key: bytes) -> bytes | None:
        """Return a row, or None."""
        raw: bytes | None = self._db_for_partition(partition).get(key)
        return raw

    def scan(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield every row of a partition."""
        for key, value in self._db_for_partition(partition).items():
            if key not in (CHANGELOG_OFFSET, self.offset_key):
                yield key, value

    def reached(self) -> dict[int, int]:
        """Return the changelog offset that each open partition holds, for whoever watches."""
        held = {partition: db.get(CHANGELOG_OFFSET) for partition, db in self._dbs.items()}
        return {number: _OFFSET.unpack(raw)[1] for number, raw in sorted(held.items()) if raw}

    def write_rows(
        self,
        partition: int,
        rows: Iterable[tuple[bytes, bytes | None]],
        changelog_offset: int | None,
    ) -> None:
        """Write rows that the changelog holds up to and including `changelog_offset`.

        None leaves the offset as it is: somebody else wrote in between, recovery shall look.
        """
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        if changelog_offset is not None:
            batch.put(CHANGELOG_OFFSET, _OFFSET.pack(self.epoch, changelog_offset))
        self._db_for_partition(partition).write(batch)

    def persisted_offset(self, tp: TP) -> int | None:
        """Return the changelog offset that this store holds, None under a new log epoch."""
        raw = self._db_for_partition(tp.partition).get(CHANGELOG_OFFSET)
        if raw is None:
            return None
        epoch, offset = _OFFSET.unpack(raw)
        return int(offset) if epoch == self.epoch else None

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Do nothing: the offset is written with the rows, in one batch."""

    def apply_changelog_batch(self, batch: Iterable[Any], *_codecs: Any, **_more: Any) -> None:
        """Apply recovered changelog records (Faust's recovery calls this)."""
        rows: dict[int, dict[bytes, bytes | None]] = {}
        offsets: dict[int, int] = {}
        for event in batch:
            message = event.message
            changed = rows.setdefault(message.partition, {})
            self._recover(message.partition, changed, message.key, message.value)
            offsets[message.partition] = message.offset
        for partition, changed in rows.items():
            self.write_rows(partition, changed.items(), offsets[partition])

    def _recover(
        self, partition: int, changed: dict[bytes, bytes | None], key: bytes, row: bytes | None
    ) -> None:
        ours = changed[key] if key in changed else self.get_row(partition, key)
        overtaken = self._overtaken.setdefault(partition, set())
        if stale(ours, row):
            overtaken.add(key)
        else:
            overtaken.discard(key)
            changed[key] = row


class ContextTable(faust.Table):  # type: ignore[misc]
    """A Faust table on a `ContextStore`: Faust assigns, recovers and names its changelog."""

    def _new_store(self) -> ContextStore:
        return ContextStore(
            "rocksdb://",
            self.app,
            self,
            table_name=self.name,
            key_type=self.key_type,
            key_serializer=self.key_serializer,
            value_type=self.value_type,
            value_serializer=self.value_serializer,
            options=dict(ROCKSDB_OPTIONS),
        )


def new_table(app: faust.App, name: str, partitions: int, epoch: int) -> ContextTable:
    """Add the table `name` to `app`."""
    table = ContextTable(
        app,
        name=name,
        partitions=partitions,
        key_type=bytes,
        value_type=bytes,
    )
    app.tables.add(table)
    table.data.epoch = epoch
    return table
