"""Computes the table of a partition at a rebuild record. Pure: records in, rows out.

The rows are the staged ones, to which the core applies the records between them and the rebuild. So
they follow from the log alone: a worker, the next one after a crash, and a replay compute the same.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from headstart.keys import SEPARATOR, workflow_type_of
from processing.config import LearningConfig
from processing.control.learned_defaults import refuse_implausible
from processing.control.messages import read_control
from processing.control.rebuild_state import KEYS, done_rows
from processing.records.batch import RecordBatch
from processing.records.partitioner import partition_for
from processing.state.chunking import chunk_rows
from processing.state.rows import (
    CONTEXT,
    DEFAULT,
    PARTITION_KEY,
    SPOOL,
    TaskStateRow,
    context_of,
    decode_context,
    deleted,
    encode_partition,
    is_deleted,
    with_version,
)
from processing.task import PartitionTask, RowAhead
from topics.control.messages import Rebuild, Staged, is_control

AT_ONCE_BYTES: Final = 450_000
"""Most bytes of the rows in one record: as base64 in JSON they have to fit 900 kB."""

UNREADABLE: Final = (ValueError, struct.error, msgspec.MsgspecError, RowAhead)
"""Raised by rows that no worker wrote."""

Rows = dict[bytes, bytes]
Row = tuple[bytes, bytes]
Read = Callable[[range], AsyncIterator[RecordBatch]]
"""Takes offsets of a partition; returns its records."""


class LogChanged(RuntimeError):
    """The log did not hold the same records when it was read again: restart the rebuild."""

    def __init__(self, log: range) -> None:
        super().__init__(
            f"records between the offsets {log.start} and {log.stop} were deleted during a "
            "rebuild: retention is too short for it"
        )


class TableRebuild:
    """Computes the rows of one partition at a rebuild.

    Pass all records of `log` to `gather`, call `begin`, pass all of them to `apply`; then `rows`
    returns the result, unless the rebuild is `refused`.
    """

    def __init__(
        self,
        rebuild: Rebuild,
        offset: int,
        partition: int,
        partitions: int,
        epoch: int,
        rules: LearningConfig,
    ) -> None:
        """`offset`: that of the rebuild record."""
        self.log = range(rebuild.offset + 1, offset)
        """The offsets to read."""
        self.refused: str | None = None
        """Why there are no rows: the staged ones are not those that the rebuild names."""
        self._rebuild, self._offset, self._epoch = rebuild, offset, epoch
        self._operators_key = rules.operators_key
        self._partition, self._partitions = partition, partitions
        self._staged: dict[int, Sequence[Row]] = {}
        self._records = 0
        """Records gathered that are not applied yet."""
        self._rows: Rows = {}
        self._core = PartitionTask(partition, partitions, epoch, rules, self._rows.get)

    def gather(self, batch: RecordBatch) -> None:
        """Collect the staged rows from records."""
        self._records += len(batch)
        for place, offset in enumerate(batch.offsets):
            headers = batch.headers.get(offset)
            if headers is None or not is_control(headers):
                continue
            value, at = batch.values[place] or b"", batch.timestamps[place]
            try:
                control = read_control(value, headers, at, self._operators_key)
            except ValueError:
                continue  # a dead letter
            # Both name this partition, or neither does: `PartitionTask` rejected other rebuilds.
            expected = self._rebuild.id, self._rebuild.partition
            if isinstance(control, Staged) and (control.id, control.partition) == expected:
                self._staged[control.place] = control.rows

    def begin(self) -> bool:
        """Restore the staged rows; return whether they are those that the rebuild names."""
        wanted = self._rebuild.places
        missing = wanted - sum(place < wanted for place in self._staged)
        if missing:
            self.refused = f"{missing} of {wanted} records of staged rows are not in the log"
            return False
        rows = [row for place in range(wanted) for row in self._staged.pop(place)]
        if digest_of(rows) != self._rebuild.digest:
            self.refused = "the staged rows are not those that the rebuild names"
            return False
        try:
            self._restore(rows)
        except UNREADABLE as error:
            self.refused = f"the staged rows cannot be read: {error}"
            return False
        if (found := self._core.applied_offset) != self._rebuild.offset:
            self.refused = f"the staged rows are of offset {found}, not {self._rebuild.offset}"
        return self.refused is None

    def _restore(self, rows: Sequence[Row]) -> None:
        """Check and restore rows. Raises one of `UNREADABLE`."""
        unnamed = self._rebuild.partition is msgspec.UNSET and self._operators_key is not None
        if unnamed and not any(key.startswith((CONTEXT, SPOOL)) for key, _row in rows):
            # Signed by an earlier version, and perhaps copied from another partition, because it
            # names none. Rows that belong to a partition are checked below.
            raise ValueError(
                "the rebuild names no partition and has no context that does; run `headstart "
                "rebuild` of this version"
            )
        for key, row in rows:
            self._check(key, row)
        self._rows.update(rows)
        self._core.restore(rows)

    def _check(self, key: bytes, row: bytes) -> None:
        """Raise one of `UNREADABLE` where this partition cannot have a row."""
        if not key:
            raise ValueError("a row without a key")
        if not key.startswith((CONTEXT, SPOOL, DEFAULT)) or is_deleted(row):
            return
        tenant, path = context_of(key)
        if not path:
            raise ValueError(f"the key {key!r:.200} has no tenant and path")
        if key.startswith(DEFAULT):
            return
        kind = workflow_type_of(path) if key.startswith(CONTEXT) else path.partition(SEPARATOR)[0]
        right = partition_for(tenant, kind, self._partitions)
        if right != self._partition:
            raise ValueError(f"the row {key!r:.200} belongs to partition {right}")
        if key.startswith(CONTEXT):
            refuse_implausible(path, decode_context(row))

    def apply(self, batch: RecordBatch) -> None:
        """Apply the records after the staged rows."""
        self._records -= len(batch)
        position = 0
        while position < len(batch):
            position = self._core.apply(batch, position)
            if self._core.pending_rebuild is not None:
                self._core.skip_rebuild()
            self._rows.update(self._core.commit().rows)

    def rows(self) -> Rows:
        """Return the partition's rows at the rebuild, without deleted ones.

        Its own row comes last, after those that mark the rebuild as done: until both are in the
        table, a restart repeats the rebuild. Raises `LogChanged`.
        """
        if self._records:
            raise LogChanged(self.log)
        epoch, offset = self._epoch, self._offset
        made = {
            key: with_version(row, epoch, offset)
            for key, row in self._rows.items()
            if key not in KEYS and not is_deleted(row)
        }
        own = made.pop(PARTITION_KEY, encode_partition(TaskStateRow(), epoch, offset))
        made |= done_rows(self._rebuild, epoch, offset)
        made[PARTITION_KEY] = own
        return made

    def replacing(self, before: Iterable[bytes]) -> Iterator[Row]:
        """Yield what turns a table into these rows: deletions of other keys, then every row.

        `before`: the keys that the table has.
        """
        rows = self.rows()
        for key in before:
            if key not in rows:
                yield key, deleted(self._epoch, self._offset)
        yield from rows.items()


def staged_parts(rows: Iterable[Row]) -> Iterator[Sequence[Row]]:
    """Split rows, in order, into chunks of one record each."""
    return chunk_rows(rows, AT_ONCE_BYTES)


def digest_of(rows: Iterable[Row]) -> str:
    """Return the digest of rows in their order."""
    found = sha256()
    for key, row in rows:
        found.update(b"%d %d " % (len(key), len(row)) + key + row)
    return found.hexdigest()


async def feed(rebuild: TableRebuild, read: Read) -> None:
    """Pass a rebuild the records that it needs."""
    async for batch in read(rebuild.log):
        rebuild.gather(batch)
    if rebuild.begin():
        async for batch in read(rebuild.log):
            rebuild.apply(batch)
