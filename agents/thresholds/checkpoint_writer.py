"""How a commit of the threshold agent takes effect: in one order, and never ahead of its log.

Knows neither Faust nor a database; the places that a commit goes to are the `CheckpointTargets`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Iterable, Sequence
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
"""Of one record batch when rows are appended again, which need not be whole commits."""


class CheckpointTargets(Protocol):
    """Where the commits of one partition go, under one assignment."""

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

    async def changelog(self, begin: int, end: int, /) -> Sequence[Row]:
        """Return the rows of the changelog from offset `begin` up to, not including, `end`."""
        ...

    def get_row(self, key: bytes, /) -> bytes | None:
        """Return a row of the local store."""
        ...

    def write_rows(self, rows: Sequence[Row], changelog_offset: int | None, /) -> None:
        """Write rows to the local store, in one step with the changelog offset it then holds."""
        ...

    def publish(self, thresholds: Sequence[PublishedThreshold], /) -> Awaitable[None]:
        """Publish to Redis, now or as soon as it is there; begins before it is awaited."""
        ...

    async def produce_thresholds(self, moved: Sequence[PublishedThreshold], /) -> None:
        """Append to the compacted topic of thresholds."""
        ...

    async def announce_rows(self, rows: Sequence[tuple[bytes, bytes]], /) -> None:
        """Append to it what rows answer."""
        ...

    async def delete_published(self, markers: Sequence[tuple[bytes, bytes]], /) -> bool:
        """Have deleted rows forgotten where they are served; return False where that must wait."""
        ...

    def done(self, end: int, /) -> None:
        """Let `end` be committed as the group's next offset."""
        ...


class CheckpointWriter:
    """Delivers the commits of one partition under one assignment, one step after the other."""

    def __init__(
        self, outlets: CheckpointTargets, next_changelog: int, complete_from: int = 0
    ) -> None:
        """`next_changelog`: the changelog offset that follows what the local store holds."""
        self.complete_from = complete_from
        """The changelog holds every row from this offset on: who has none need not read before."""
        self.in_flight: Sequence[PublishedThreshold] = ()
        """What was published of rows that the local store may not have yet."""
        self._outlets = outlets
        self._publishing: Awaitable[None] | None = None
        self._next = next_changelog
        self._ahead = (-1, -1)
        self._newer: dict[bytes, tuple[int, int]] = {}
        """Versions of rows that others appended, which ours have not come to yet."""
        self._one_at_a_time = asyncio.Lock()

    def publish(self, thresholds: Sequence[PublishedThreshold]) -> None:
        """Begin to publish thresholds whose rows come with a later commit, which waits for it.

        Why it may, `deliver` says.
        """
        if self._outlets.current():
            self.in_flight = [*self.in_flight, *thresholds]
            self._publishing = self._outlets.publish(thresholds)

    async def published(self) -> None:
        """Return when Redis has what was last published so, or has been found away."""
        if self._publishing is not None:
            await self._publishing

    async def deliver(self, commit: Checkpoint) -> None:
        """Make a commit take effect. An exception leaves it to the next owner, whole.

        Thresholds are published before the rows are in: they follow from the log, so
        whoever applies these records again, because the rows did not arrive, publishes the same or
        what is newer. Only what has moved since the last commit is announced, so that waits.
        """
        outlets = self._outlets
        async with self._one_at_a_time:
            if commit.dead_letters:
                await outlets.send_dead_letters(commit.dead_letters)
            if not outlets.current():
                return
            self.in_flight = [*self.in_flight, *commit.thresholds]
            published = outlets.publish(commit.thresholds)
            appended = await self._append(commit.rows)
            if appended and commit.moved:
                await outlets.produce_thresholds(commit.moved)
            await self.published()
            await published
            self.in_flight = ()
            if appended:  # else the next owner recovers these rows from the changelog
                outlets.done(commit.end)

    async def mend(self, keys: Iterable[bytes]) -> None:
        """Append our rows of `keys` again: stale ones were found after them in the changelog."""
        async with self._one_at_a_time:
            ours = [(key, row) for key in keys if (row := self._outlets.get_row(key)) is not None]
            await self._answer(ours)

    async def check_changelog(self, end: int) -> None:
        """Look at what others appended since our last step, `end` being the changelog's end."""
        async with self._one_at_a_time:
            if end <= self._next:
                return
            better = await self._better(self._next, end)
            self._next = end
            if self._outlets.current() and await self._answer(better):
                self._write((), self._next - 1)

    async def rewrite(self, pieces: AsyncIterable[Iterable[bytes]]) -> None:
        """Append again the row of every key, so that who restores the table reads them alone.

        `pieces`: the keys of all rows of the local store. Commits go on in between; what they
        change stands behind the beginning too.
        """
        async with self._one_at_a_time:
            if self._behind_others():
                return  # rows before the beginning are in no store of ours
            begin = self._next
        async for keys in pieces:
            async with self._one_at_a_time:
                rows = [(key, row) for key in keys if (row := self._outlets.get_row(key))]
                if not await self._append_again(rows):
                    return
        self.complete_from = begin

    async def bury(self, markers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Append tombstones for rows that were deleted long ago, where they still are.

        Return False where that has to wait, because what they served cannot be retracted yet.
        """
        async with self._one_at_a_time:
            still = [(key, row) for key, row in markers if self._outlets.get_row(key) == row]
            if not self._outlets.current() or not still:
                return True
            if not await self._outlets.delete_published(still):
                return False
            await self._append_again([(key, None) for key, _row in still])
            return True

    async def _answer(self, rows: Sequence[tuple[bytes, bytes]]) -> bool:
        """Append our rows that stale ones followed; return whether all are in.

        Whoever appended those has announced what they answer, or will; we only announce what has
        moved since our last commit, which may be nothing. So what ours answer is said again.
        """
        if not await self._append_again(rows):
            return False
        if rows:
            await self._outlets.announce_rows(rows)
        return True

    async def _append_again(self, rows: Sequence[Row]) -> bool:
        """Append rows that are no commit, bit by bit; return whether all are in."""
        for part in chunk_rows(rows, APPENDED_BYTES):
            if not await self._append(part):
                return False
        return True

    async def _append(self, rows: Sequence[Row]) -> bool:
        """Append rows to the changelog, then to the local store; return whether they are in both.

        The local store is never ahead of the changelog, and the offset that it remembers never
        passes over foreign rows that were not looked at.
        """
        outlets = self._outlets
        if not outlets.current():
            return False
        first, last = await outlets.send_rows(rows, self.complete_from)
        if not outlets.current():
            return False
        begin, self._next = self._next, last + 1
        if first == begin:
            self._write(rows, last)
        else:
            outlets.write_rows(rows, None)
            if not await self._answer(await self._better(begin, first)):
                return False
            self._write((), self._next - 1)
        if self._newer:
            await self._catch_up(rows)
        return True

    async def _catch_up(self, rows: Sequence[Row]) -> None:
        """Announce rows of ours that others had before us; see `_answer`."""
        newer = self._newer
        ours = [(k, row) for k, row in rows if row and k in newer and version(row) >= newer[k]]
        for key, _row in ours:
            del newer[key]
        if ours:
            await self._outlets.announce_rows(ours)

    def _write(self, rows: Sequence[Row], changelog_offset: int) -> None:
        """Write rows to the local store, and the offset unless it would pass over newer rows.

        Those of another owner that was ahead of us are in no store of ours until we have come as
        far; a recovery that began after them would miss them.
        """
        behind = self._behind_others(dict(rows).get(PARTITION_KEY))
        self._outlets.write_rows(rows, None if behind else changelog_offset)

    def _behind_others(self, row: bytes | None = None) -> bool:
        """Return whether another owner's rows are newer than ours, `row` being the partition's."""
        if self._ahead == (-1, -1):
            return False
        row = row or self._outlets.get_row(PARTITION_KEY)
        return row is None or version(row) < self._ahead

    async def _better(self, begin: int, end: int) -> list[tuple[bytes, bytes]]:
        """Return our rows that stale ones followed between two offsets of the changelog.

        A stale row must not stay the last one of its key: compaction would take the good one.
        """
        outlets = self._outlets
        theirs = dict(await outlets.changelog(begin, end))
        partition = outlets.get_row(PARTITION_KEY)
        reached = (-1, -1) if partition is None else version(partition)
        rows: list[tuple[bytes, bytes]] = []
        for key, row in theirs.items():
            if not is_row(key, row):
                if key is not None and (held := outlets.get_row(key)) is not None:
                    rows.append((key, held))
                continue
            if row is not None:
                self._ahead = max(self._ahead, version(row))
            ours = answer(outlets.get_row(key), row, reached)
            if ours is not None:
                rows.append((key, ours))
            elif row is not None and version(row) > reached:
                self._newer[key] = version(row)
        log.warning("changelog.foreign", begin=begin, end=end, mended=len(rows))
        return rows


def answer(ours: bytes | None, theirs: bytes | None, reached: tuple[int, int]) -> bytes | None:
    """Return the row to append after another process's row of the same key; None where it is right.

    `reached`: (epoch, applied offset) of our rows. A tombstone is right where nothing is. A row of
    ours that is gone was deleted, marked, and buried since; that is said again.
    """
    if ours is not None:
        return ours if stale(ours, theirs) else None
    if theirs is None:
        return None
    epoch, offset = version(theirs)
    if (epoch, offset) > reached or is_deleted(theirs):
        return None
    return deleted(epoch, offset + 1)
