"""The contexts table's local store: RocksDB, written only after the changelog acknowledged.

Rows and the changelog offset they came from are written in one WriteBatch, so the local store is
always a prefix of the changelog, never ahead of it. Recovery (agents/thresholds/recovery.py) is
not Faust's, which takes 200 us a row and lets the last row win.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Final

import faust
import rocksdict
from faust.stores.rocksdb import Store
from faust.types import TP

from processing.state.rows import PARTITION_KEY

CHANGELOG_OFFSET: Final = b"@changelog"
CHUNK_ROWS: Final = 2_000
NOTHING: Final = -1
"""The changelog offset of a store that holds nothing of this log epoch's changelog."""
_OFFSET = struct.Struct("<Qq")

ROCKSDB_OPTIONS: Final = {
    # Per partition, so small: rows are small and mostly cached by the agent, and a buffer that is
    # still filling looks like a leak. Faust's default would cache 2 GiB.
    "block_cache_size": 8 * 1024 * 1024,
    "write_buffer_size": 4 * 1024 * 1024,
    "max_write_buffer_number": 2,
}


class ContextStore(Store):  # type: ignore[misc]
    """RocksDB store of one table, in one log epoch."""

    epoch: int

    def get_row(self, partition: int, key: bytes) -> bytes | None:
        """Return a row, or None."""
        raw: bytes | None = self._db_for_partition(partition).get(key)
        return raw

    def scan(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield every row of a partition."""
        options = rocksdict.ReadOptions()
        options.fill_cache(False)  # else blocks of deleted files fill it
        for key, value in self._db_for_partition(partition).items(read_opt=options):
            if key not in (CHANGELOG_OFFSET, self.offset_key):
                yield key, value

    async def scan_chunks(self, partition: int) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yield every row of a partition in lists, and let the event loop run in between.

        A partition may have a million rows, and a loop that is blocked beyond the session ends
        its process (agents/health/stall_guard.py).
        """
        rows = self.scan(partition)
        while chunk := list(islice(rows, CHUNK_ROWS)):
            yield chunk
            await asyncio.sleep(0)

    def page(self, partition: int, begin: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Return up to `count` rows in the order of their keys, from `begin` on.

        For a slow pass over all rows: an iterator would keep obsolete files.
        """
        options = rocksdict.ReadOptions()
        options.fill_cache(False)
        rows = self._db_for_partition(partition).items(from_key=begin, read_opt=options)
        return list(islice(rows, count))

    def restored_offsets(self) -> dict[int, int]:
        """Return by open partition the changelog offset that it holds, for health reports."""
        held = {partition: db.get(CHANGELOG_OFFSET) for partition, db in self._dbs.items()}
        return {number: _OFFSET.unpack(raw)[1] for number, raw in sorted(held.items()) if raw}

    def write_rows(
        self,
        partition: int,
        rows: Iterable[tuple[bytes, bytes | None]],
        changelog_offset: int | None,
    ) -> None:
        """Write rows that the changelog holds up to and including `changelog_offset`.

        None leaves the offset unchanged: recovery must read what another owner wrote in between.
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

    async def drop_rows(self, partition: int) -> None:
        """Delete every row of a partition, its own row last: interrupted, it is called again."""
        async for rows in self.scan_chunks(partition):
            others = [(key, None) for key, _row in rows if key != PARTITION_KEY]
            self.write_rows(partition, others, None)
        self.write_rows(partition, [(PARTITION_KEY, None)], NOTHING)

    def has_table(self, partition: int) -> bool:
        """Return whether this worker ever had the partition."""
        return partition in self._dbs or self.partition_path(partition).is_dir()

    def release(self, partition: int) -> None:
        """Close the table of a partition that is not assigned; it is opened again when needed."""
        self._dbs.pop(partition, None)

    def held_offset(self, partition: int) -> int | None:
        """Return the changelog offset that this store holds, None under a new log epoch.

        `NOTHING`: its rows were dropped under this one.
        """
        raw = self._db_for_partition(partition).get(CHANGELOG_OFFSET)
        if raw is None:
            return None
        epoch, offset = _OFFSET.unpack(raw)
        return int(offset) if epoch == self.epoch else None

    def persisted_offset(self, _tp: TP) -> int | None:
        """Return None: Faust must not restore."""
        return None

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Do nothing: the offset is written with the rows, in one batch."""


class ContextTable(faust.Table):  # type: ignore[misc]
    """A Faust table on a `ContextStore`: Faust assigns its partitions and names its changelog."""

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
