"""Reads one spool for its shipper: in order, with acknowledgements, deleting what is done.

If the broker keeps its log in memory, an acknowledged event stays in the spool until it is consumed
(`retain`), and is read again if the log was lost (`rewind`): see decision 0026.

A torn end is left by kill -9 and skipped. Any other damage is quarantined, logged and counted, and
reading continues after it.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import orjson

from headstart.scrubbing.scrubber import scrubber
from headstart.shipping.chunks import TOO_OLD, TOO_OLD_AGAIN, Chunk, Item
from headstart.spool.acknowledged import AcknowledgedMarks
from headstart.spool.layout import SPOOL_FILE, described_target, is_spool_file, segments
from headstart.spool.locks import try_lock
from headstart.spool.losses import Losses
from headstart.spool.purged_positions import read_purged
from headstart.spool.quarantine import keep_event, keep_file, keep_segment
from headstart.spool.segment_format import (
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    SegmentTail,
    SpoolRecord,
    find_record,
    scan,
    unpack_header,
)

log = logging.getLogger("headstart")

READ_BYTES: Final = 2 * MAX_RECORD_BYTES
"""Bytes per read: large enough for any whole record."""


class UnreadableSpool(Exception):
    """A spool that cannot be opened: damaged, or of another version."""


class SpoolReader:
    """The events of one spool that the broker does not have yet."""

    def __init__(
        self,
        folder: Path,
        max_age_s: float,
        now_ms: Callable[[], int],
        on_lost: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """Open the spool in `folder`. Raises `UnreadableSpool`.

        `on_lost`: called with each number of events that will not be sent.
        """
        self.folder, self.name, self._on_lost = folder, folder.name, on_lost
        self._max_age_ms, self._now_ms = max_age_s * 1000, now_ms
        self._lock = self._file = -1
        self._marks: AcknowledgedMarks | None = None
        try:
            self._lock = os.open(folder / SPOOL_FILE, os.O_RDWR)
            described = orjson.loads(os.pread(self._lock, 65_536, 0))
            self.target = described_target(described)
            self._scrub = scrubber(self.target.scrub, "shipper")
            purged = read_purged(folder)
            marks = self._marks = AcknowledgedMarks(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.close()
            raise UnreadableSpool(f"{folder}: {error!r}") from error
        self.marks, self.progress = marks, marks.progress
        self._next = marks.acknowledged
        self._losses = Losses((marks.acknowledged, marks.progress.settled), purged)
        self._chunks: deque[Chunk] = deque()
        self._read_segments: deque[tuple[int, Path]] = deque()
        self._path = folder
        self._offset = self._created_ms = 0
        self._writer_dead = self._complete = self._exhausted = False
        self._bad_offset = -1
        self._checked_offset = -1
        self._damaged = False
        self._tail = SegmentTail.END
        self._quarantined: set[Path] = set()
        self._advance()

    @property
    def drained(self) -> bool:
        """Whether its process is dead and the broker has every event."""
        return self._exhausted and not self._chunks

    @property
    def removable(self) -> bool:
        """Whether it can be removed: it is drained, and nothing must be retained."""
        return self.drained and not self.retained

    @property
    def retained(self) -> int:
        """Number of positions that are acknowledged but not consumed."""
        return self.marks.acknowledged - self.marks.consumed

    @property
    def retained_bytes(self) -> int:
        """Bytes of the segments that are retained although fully acknowledged."""
        sizes = 0
        for end, path in self._read_segments:
            if end > self.marks.acknowledged:
                break
            try:
                sizes += path.stat().st_size
            except FileNotFoundError:  # dropped at the limit
                continue
        return sizes

    @property
    def writer_alive(self) -> bool:
        """Whether its process still runs."""
        return not self._writer_dead

    @property
    def tail_uncertain(self) -> bool:
        """Whether it ends in a partial record: a write in progress, or damage."""
        return self._tail in (SegmentTail.BAD, SegmentTail.SHORT)

    def check_writer(self) -> None:
        """Check whether the process died, or started another segment without sealing this one."""
        if not self._writer_dead and try_lock(self._lock):
            self._writer_dead = True
        # Decided before the next read, so that it sees everything. The folder is listed only if
        # nothing came since the last check: that costs more than reading a spool.
        idle, self._checked_offset = self._checked_offset == self._offset, self._offset
        self._complete = self._writer_dead or (idle and self._next_segment() is not None)
        # Bytes that stay invalid from one check to the next are not a write in progress.
        self._damaged = self._bad_offset == self._offset
        self._bad_offset = self._offset if self._tail is SegmentTail.BAD else -1

    def read(self) -> list[Item]:
        """Return the next events, oldest first; empty if there are none yet."""
        if self._file < 0 and not self._exhausted:
            self._advance()
        if self._file < 0:
            return []
        data = os.pread(self._file, READ_BYTES, self._offset)
        if not data and not self._complete:
            return []
        found = scan(data, 0)
        self._tail = found.tail
        self._offset += found.end
        items = self._accept(found.records)
        if found.tail is SegmentTail.SEALED:
            self._advance()
        elif found.end == 0 and (self._complete or self._damaged):
            self._skip_damage(data)
        return items

    def _accept(self, records: list[SpoolRecord]) -> list[Item]:
        fresh = [record for record in records if record.position >= self._next]
        if not fresh:
            return []
        self._skip_to(fresh[0].position)
        settled = self.progress.settled
        if fresh[0].position >= settled:
            return self._accept_part(fresh, again=False)
        before = [record for record in fresh if record.position < settled]
        items = self._accept_part(before, again=True)
        if len(before) < len(fresh):
            self._skip_to(fresh[len(before)].position)
            items += self._accept_part(fresh[len(before) :], again=False)
        return items

    def _accept_part(self, fresh: list[SpoolRecord], *, again: bool) -> list[Item]:
        """Make a chunk of records; nothing is counted twice for those sent again."""
        first, self._next = fresh[0].position, fresh[-1].position + 1
        if self.is_stale(self._created_ms):
            self.quarantine_segment(TOO_OLD_AGAIN if again else TOO_OLD)
            self.count_lost(self._losses.stale(first, self._next, self.marks.consumed))
            self._skip_to_next(first)
            return []
        if self._next - first > len(fresh):  # gaps left by damage or a failed fsync
            for one, other in pairwise(fresh):
                self._count_missing(one.position + 1, other.position)
        chunk = Chunk(self, len(fresh), self._next, self._path, self._created_ms, again=again)
        self._chunks.append(chunk)
        items = self._items(fresh, chunk)
        if not items:
            self.advance()
        return items

    def _items(self, records: list[SpoolRecord], chunk: Chunk) -> list[Item]:
        """Return the records without secrets; those that cannot be scrubbed are quarantined."""
        scrub = self._scrub
        if scrub is None:
            return [Item(record.key, record.event, chunk) for record in records]
        before, items = scrub.replaced, []
        for record in records:
            try:
                items.append(Item(record.key, scrub(record.event), chunk))
            except ValueError as error:
                if not chunk.again:
                    self.quarantine_event(record.event, f"cannot be scrubbed: {error}")
                    self.count_lost(1)
                chunk.left -= 1
        if not chunk.again:
            chunk.scrubbed = scrub.replaced - before
        return items

    def _skip_to(self, position: int) -> None:
        """Count positions that are missing: dropped at the limit, or damaged."""
        if position > self._next:
            first, self._next = self._next, position
            if missing := self._count_missing(first, position):
                log.error(
                    "%d events of spool %s are missing before position %d: dropped at the limit, "
                    "or damaged",
                    missing,
                    self.name,
                    position,
                )
            self._skip_to_next(first)

    def _count_missing(self, first: int, end: int) -> int:
        """Count missing positions that were not counted before; return how many."""
        missing = self._losses.missing(first, end, self.marks.consumed)
        self.count_lost(missing)
        return missing

    def _skip_to_next(self, first: int) -> None:
        """Mark positions from `first` on, which are not sent, as done."""
        self._chunks.append(Chunk(self, 0, self._next, self._path, self._created_ms))
        self.advance()
        if first <= self.marks.consumed:
            self.mark_consumed(self._next)

    def _skip_damage(self, data: bytes) -> None:
        """Continue after an invalid record, or with the next segment."""
        following = self._next_segment()
        torn = following is None or following[0] <= self._next
        if data:
            at = find_record(data, self._next)
            if at is None and len(data) == READ_BYTES:
                at = len(data) - MAX_RECORD_BYTES
            if at is not None or not torn:
                self.quarantine_segment(f"is damaged at byte {self._offset}")
            else:
                log.info("%s ends in a partial event, whose emit() never returned", self._path)
            if at is not None:
                self._offset += at
                return
        if self._complete:
            self._advance()

    def _next_segment(self) -> tuple[int, Path] | None:
        """Return the segment after the current one."""
        try:
            there = segments(self.folder)
        except FileNotFoundError:
            return None
        current = int(self._path.stem) if self._file >= 0 else -1
        return next((found for found in there if found[0] > current), None)

    def _advance(self) -> None:
        """Open the next segment; if there is none and the writer is dead, the end is reached."""
        following = self._next_segment() if self._file >= 0 else self._first_segment()
        if self._file >= 0:
            if following is not None:
                self._skip_to(following[0])
            os.close(self._file)
            self._file = -1
            self._read_segments.append((self._next, self._path))
            self._release()
        if following is None:
            self._exhausted = self._writer_dead
            return
        self._complete = self._writer_dead  # then all of it is there
        self._open(following[1])

    def _first_segment(self) -> tuple[int, Path] | None:
        """Return the segment that contains the next position, or the first after it."""
        try:
            there = segments(self.folder)
        except FileNotFoundError:
            return None
        done = {path for _end, path in self._read_segments}
        there = [found for found in there if found[1] not in done]
        below = [found for found in there if found[0] <= self._next]
        for _first_segment, path in below[:-1]:
            path.unlink(missing_ok=True)  # all of it is settled: the next one starts below
        return below[-1] if below else next(iter(there), None)

    def _open(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # dropped at the limit: the next read finds its successor
            return
        self._path = path
        header = unpack_header(os.pread(self._file, HEADER_BYTES, 0))
        self._offset, self._created_ms = HEADER_BYTES, header[1] if header else self._now_ms()
        if header is None:
            self.quarantine_segment("has no valid header")

    def is_stale(self, created_ms: int) -> bool:
        """Whether events of a segment of that age are too old to be sent."""
        return self._now_ms() - created_ms > self._max_age_ms

    def count_lost(self, count: int) -> None:
        """Count events that will not be sent."""
        self.progress.lost += count
        self._on_lost(count)

    def advance(self) -> None:
        """Advance the acknowledgement to the oldest event in flight."""
        acknowledged = self.marks.acknowledged
        while self._chunks and self._chunks[0].left == 0:
            chunk = self._chunks.popleft()
            acknowledged = max(acknowledged, chunk.end)
            self.progress.scrubbed += chunk.scrubbed
        if acknowledged > self.marks.acknowledged and self.marks.advance(acknowledged):
            self._release()

    def _release(self) -> None:
        while self._read_segments and self._read_segments[0][0] <= self.marks.consumed:
            self._read_segments.popleft()[1].unlink(missing_ok=True)

    def retain(self, *, keep: bool) -> None:
        """Retain acknowledged events until `mark_consumed`, or not. Raises `OSError`."""
        if self.marks.set_retention(keep):
            self._release()

    def mark_consumed(self, position: int) -> None:
        """Note that acknowledged events below `position` are consumed: no broker can lose them."""
        if self.marks.mark_consumed(position):
            self._release()

    def release_oldest(self) -> int:
        """Delete the oldest segment if fully acknowledged; return its number of retained events."""
        if not self._read_segments or self._read_segments[0][0] > self.marks.acknowledged:
            return 0
        position = self._read_segments[0][0]
        count = max(0, position - self.marks.consumed)
        self.mark_consumed(position)
        return count

    def rewind(self) -> int:
        """Read unconsumed events again after the log was lost; return how many were acknowledged.

        The sender must have discarded the items of earlier reads.
        """
        count = self.marks.rewind()
        self._losses.read_again(self._next)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._chunks.clear()
        self._read_segments.clear()
        self._next = self.marks.acknowledged
        self._exhausted = self._complete = self._damaged = False
        self._bad_offset = self._checked_offset = -1
        self._tail = SegmentTail.END
        self._advance()
        return count

    def quarantine_event(self, event: bytes, reason: str) -> None:
        """Quarantine one event that will not be sent."""
        keep_event(self.folder, event, reason)

    def quarantine_segment(self, reason: str, path: Path | None = None) -> None:
        """Quarantine a copy of a segment, by default the current one; once per segment."""
        path = path or self._path
        if path not in self._quarantined:
            self._quarantined.add(path)
            keep_segment(path, reason)

    def remove(self) -> None:
        """Delete the spool, which is `removable`; files of other names are quarantined.

        Raises `OSError`.
        """
        self.close()
        for path in self.folder.iterdir():
            if not is_spool_file(path.name):
                keep_file(path)
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)
        self.folder.rmdir()

    def close(self) -> None:
        """Close the files; the next reader reads again what is not settled."""
        if self._marks is not None:
            self._marks.close()
        for name in ("_file", "_lock"):
            descriptor = getattr(self, name)
            setattr(self, name, -1)
            if descriptor >= 0:
                os.close(descriptor)
