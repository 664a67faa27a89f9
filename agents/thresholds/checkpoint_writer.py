"""How a checkpoint of the threshold agent takes effect: in one order, never ahead of its log.

Knows neither Faust nor a database: `CheckpointTargets` are the places that a checkpoint goes to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Final, Protocol

import structlog

from processing.records.dead_letters import DeadLetter
from processing.state.chunking import chunk_rows
from processing.state.rows import PARTITION_KEY, deleted, is_deleted, is_row, stale, version
from processing.task import Checkpoint
from topics.schema.json_schema import PublishedThreshold

log = structlog.get_logger()

Row = tuple[bytes, bytes | None]
"""(key, row); None is a tombstone."""
APPENDED_BYTES: Final = 4_000_000
"""Of one record batch when rows are appended again, which need not be whole checkpoints."""


class CheckpointTargets(Protocol):
    """Where the checkpoints of one partition go, under one assignment."""

    def current(self) -> bool:
        """Return whether the partition is still assigned to this process."""
        ...

    async def send_dead_letters(self, letters: Sequence[DeadLetter], /) -> None:
        """Return when the broker has them."""
        ...

    async def send_rows(self, rows: Sequence[Row], complete_from: int, /) -> tuple[int, int]:
        """Append rows to the changelog as one record batch; return its first and last offset.

        `complete_from` goes with it: see `CheckpointWriter.complete_from`.
        """
        ...

    async def read_changelog(self, begin: int, end: int, /) -> Sequence[Row]:
        """Return the rows of the changelog from offset `begin` up to, not including, `end`."""
        ...

    def get_row(self, key: bytes, /) -> bytes | None:
        """Return a row of the local store."""
        ...

    def write_rows(self, rows: Sequence[Row], changelog_offset: int | None, /) -> None:
        """Write rows to the local store, in one step with the changelog offset it then holds."""
        ...

    def publish(self, thresholds: Sequence[PublishedThreshold], /) -> None:
        """Begin to publish to Redis; what fails is retried later."""
        ...

    async def wait_published(self) -> None:
        """Return when Redis has all that was published so far, or was found away."""
        ...

    async def produce_thresholds(self, changed: Sequence[PublishedThreshold], /) -> None:
        """Append to the compacted topic of thresholds."""
        ...

    async def produce_rows(self, rows: Sequence[tuple[bytes, bytes]], /) -> None:
        """Append the thresholds of rows to that topic."""
        ...

    async def delete_published(self, markers: Sequence[tuple[bytes, bytes]], /) -> bool:
        """Delete contexts where they are published; return False where that must wait."""
        ...

    def done(self, end: int, /) -> None:
        """Let `end` be committed as the group's next offset."""
        ...


class CheckpointWriter:
    """Writes the checkpoints of one partition under one assignment, one after the other."""

    def __init__(
        self, targets: CheckpointTargets, next_changelog: int, complete_from: int = 0
    ) -> None:
        """`next_changelog`: the changelog offset that follows what the local store holds."""
        self.complete_from = complete_from
        """Every row is in the changelog at or after this offset; a restore begins here."""
        self._targets = targets
        self._next = next_changelog
        self._newest_foreign = (-1, -1)
        self._newer: dict[bytes, tuple[int, int]] = {}
        """Versions of rows that another owner appended and that ours have not reached yet."""
        self._one_at_a_time = asyncio.Lock()

    async def write(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint take effect. An exception leaves it to the next owner, whole.

        1. Dead letters.
        2. Redis, begun before the rows are in: thresholds follow from the log, so the next owner,
           which applies these records again if the rows did not arrive, publishes the same or
           newer ones.
        3. The changelog, then the local store.
        4. The compacted topic, only what changed since the last checkpoint; so it waits for 3.
        5. The group's offset, when Redis also has what was published ahead of these rows.
        """
        targets = self._targets
        async with self._one_at_a_time:
            if checkpoint.dead_letters:
                await targets.send_dead_letters(checkpoint.dead_letters)
            if not targets.current():
                return
            targets.publish(checkpoint.thresholds)
            appended = await self._append(checkpoint.rows)
            if appended and checkpoint.moved:
                await targets.produce_thresholds(checkpoint.moved)
            await targets.wait_published()
            if appended:  # else the next owner recovers these rows from the changelog
                targets.done(checkpoint.end)

    async def rewrite_stale_keys(self, keys: Iterable[bytes]) -> None:
        """Append our rows of `keys` again: stale ones follow them in the changelog."""
        async with self._one_at_a_time:
            ours = [(key, row) for key in keys if (row := self._targets.get_row(key)) is not None]
            await self._supersede(ours)

    async def check_changelog(self, end: int) -> None:
        """Read what others appended since our last step; `end` is the changelog's end."""
        async with self._one_at_a_time:
            if end <= self._next:
                return
            rows = await self._superseding(self._next, end)
            self._next = end
            if self._targets.current() and await self._supersede(rows):
                self._store((), self._next - 1)

    async def rewrite(self, chunks: AsyncIterable[Iterable[bytes]]) -> None:
        """Append the row of every key again, so that a restore reads only those.

        `chunks`: the keys of all rows of the local store. Checkpoints are written in between; the
        rows that they change are after the beginning too.
        """
        async with self._one_at_a_time:
            if self._behind_others():
                return  # the local store lacks rows that are before the beginning
            begin = self._next
        async for keys in chunks:
            async with self._one_at_a_time:
                rows = [(key, row) for key in keys if (row := self._targets.get_row(key))]
                if not await self._append_again(rows):
                    return
        self.complete_from = begin

    async def delete_expired(self, markers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Append tombstones for rows that were deleted long ago and are still deleted.

        Return False where that has to wait, because Redis cannot delete them yet.
        """
        async with self._one_at_a_time:
            expired = [(key, row) for key, row in markers if self._targets.get_row(key) == row]
            if not self._targets.current() or not expired:
                return True
            if not await self._targets.delete_published(expired):
                return False
            await self._append_again([(key, None) for key, _row in expired])
            return True

    async def _supersede(self, rows: Sequence[tuple[bytes, bytes]]) -> bool:
        """Append our rows again after stale ones of the same keys; return whether all are in.

        The owner that appended the stale ones has produced their thresholds, or will. We only
        produce what changed since our last checkpoint, perhaps nothing, so produce these again.
        """
        if not await self._append_again(rows):
            return False
        if rows:
            await self._targets.produce_rows(rows)
        return True

    async def _append_again(self, rows: Sequence[Row]) -> bool:
        """Append rows outside a checkpoint, in several batches; return whether all are in."""
        for part in chunk_rows(rows, APPENDED_BYTES):
            if not await self._append(part):
                return False
        return True

    async def _append(self, rows: Sequence[Row]) -> bool:
        """Append rows to the changelog, then to the local store; return whether they are in both.

        The local store is never ahead of the changelog, and the offset that it holds never passes
        rows of another owner that were not read.
        """
        targets = self._targets
        if not targets.current():
            return False
        first, last = await targets.send_rows(rows, self.complete_from)
        if not targets.current():
            return False
        begin, self._next = self._next, last + 1
        if first == begin:
            self._store(rows, last)
        else:
            targets.write_rows(rows, None)
            if not await self._supersede(await self._superseding(begin, first)):
                return False
            self._store((), self._next - 1)
        if self._newer:
            await self._produce_caught_up(rows)
        return True

    async def _produce_caught_up(self, rows: Sequence[Row]) -> None:
        """Produce thresholds of rows that another owner had before us; see `_supersede`."""
        newer = self._newer
        ours = [(k, row) for k, row in rows if row and k in newer and version(row) >= newer[k]]
        for key, _row in ours:
            del newer[key]
        if ours:
            await self._targets.produce_rows(ours)

    def _store(self, rows: Sequence[Row], changelog_offset: int) -> None:
        """Write rows to the local store, and the offset unless it would pass newer rows.

        Rows of another owner that is ahead of us are not in our store until we have come as far; a
        recovery that began after them would miss them.
        """
        behind = self._behind_others(dict(rows).get(PARTITION_KEY))
        self._targets.write_rows(rows, None if behind else changelog_offset)

    def _behind_others(self, row: bytes | None = None) -> bool:
        """Return whether another owner's rows are newer than ours, `row` being the partition's."""
        if self._newest_foreign == (-1, -1):
            return False
        row = row or self._targets.get_row(PARTITION_KEY)
        return row is None or version(row) < self._newest_foreign

    async def _superseding(self, begin: int, end: int) -> list[tuple[bytes, bytes]]:
        """Return our rows that stale ones follow between two offsets of the changelog.

        A stale row must not stay the last one of its key: compaction would delete the right one.
        """
        targets = self._targets
        foreign = dict(await targets.read_changelog(begin, end))
        partition = targets.get_row(PARTITION_KEY)
        reached = (-1, -1) if partition is None else version(partition)
        rows: list[tuple[bytes, bytes]] = []
        for key, row in foreign.items():
            if not is_row(key, row):
                if key is not None and (held := targets.get_row(key)) is not None:
                    rows.append((key, held))
                continue
            if row is not None:
                self._newest_foreign = max(self._newest_foreign, version(row))
            ours = superseding_row(targets.get_row(key), row, reached)
            if ours is not None:
                rows.append((key, ours))
            elif row is not None and version(row) > reached:
                self._newer[key] = version(row)
        log.warning("changelog.stale_writer", begin=begin, end=end, superseded=len(rows))
        return rows


def superseding_row(
    ours: bytes | None, theirs: bytes | None, reached: tuple[int, int]
) -> bytes | None:
    """Return the row to append after another owner's row of the same key; None: theirs is right.

    `reached`: (epoch, applied offset) of our rows. A tombstone is right where we have no row. If we
    have none although their version is not newer, ours was deleted and its marker expired since;
    the marker is appended again.
    """
    if ours is not None:
        return ours if stale(ours, theirs) else None
    if theirs is None:
        return None
    epoch, offset = version(theirs)
    if (epoch, offset) > reached or is_deleted(theirs):
        return None
    return deleted(epoch, offset + 1)
