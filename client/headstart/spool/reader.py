"""One spool as its shipper sees it: read in order, acknowledged, released. The reading side.

Where the broker keeps its log in memory only, an acknowledged event stays in the spool until it is
taken in (`retain`), and is read again when the log was lost (`rewind`): see decision 0026.

A torn end is what kill -9 leaves and is skipped; anything else that is not a whole record is kept
in quarantine, named and counted, and reading goes on behind it.
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
from headstart.spool.layout import SPOOL_FILE, described_target, segments
from headstart.spool.locks import try_lock
from headstart.spool.losses import Losses
from headstart.spool.quarantine import keep_event, keep_segment
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
"""Read at a time: any record is whole in it."""


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
            marks = self._marks = AcknowledgedMarks(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.close()
            raise UnreadableSpool(f"{folder}: {error!r}") from error
        self.marks, self.progress = marks, marks.progress
        self._next = marks.sent
        self._losses = Losses((marks.sent, marks.progress.settled))
        self._chunks: deque[Chunk] = deque()
        self._passed: deque[tuple[int, Path]] = deque()
        self._path = folder
        self._offset = self._created_ms = 0
        self._dead = self._final = self._exhausted = False
        self._suspect = -1
        self._attended = -1
        self._damaged = False
        self._tail = SegmentTail.END
        self._quarantined: set[Path] = set()
        self._advance()

    @property
    def through(self) -> bool:
        """Whether its process is gone and the broker has everything in it."""
        return self._exhausted and not self._chunks

    @property
    def finished(self) -> bool:
        """Whether it can be removed: it is through, and nothing has to be kept."""
        return self.through and not self.retained

    @property
    def retained(self) -> int:
        """How many positions are acknowledged, and kept until they are taken in."""
        return self.marks.sent - self.marks.taken

    @property
    def retained_bytes(self) -> int:
        """Bytes of the segments that are kept although all of them is acknowledged."""
        sizes = 0
        for end, path in self._passed:
            if end > self.marks.sent:
                break
            try:
                sizes += path.stat().st_size
            except FileNotFoundError:  # dropped at the limit
                continue
        return sizes

    @property
    def living(self) -> bool:
        """Whether its process still runs."""
        return not self._dead

    @property
    def doubtful(self) -> bool:
        """Whether it ends in what is no whole record: a write under way, or damage."""
        return self._tail in (SegmentTail.BAD, SegmentTail.SHORT)

    def attend(self) -> None:
        """Look whether the process has died, or has gone on to another segment without a seal."""
        if not self._dead and try_lock(self._lock):
            self._dead = True
        # Judged before the next read, so that this read sees all there will ever be. Only where
        # nothing came since the last look: to list its folder costs more than to read a spool.
        still, self._attended = self._attended == self._offset, self._offset
        self._final = self._dead or (still and self._later() is not None)
        # Where bytes stay wrong from one look to the next, it is no write under way.
        self._damaged = self._suspect == self._offset
        self._suspect = self._offset if self._tail is SegmentTail.BAD else -1

    def read(self) -> list[Item]:
        """Return the next events, oldest first; empty where there are none yet."""
        if self._file < 0 and not self._exhausted:
            self._advance()
        if self._file < 0:
            return []
        data = os.pread(self._file, READ_BYTES, self._offset)
        if not data and not self._final:
            return []
        found = scan(data, 0)
        self._tail = found.tail
        self._offset += found.end
        items = self._take(found.records)
        if found.tail is SegmentTail.SEALED:
            self._advance()
        elif found.end == 0 and (self._final or self._damaged):
            self._pass_over(data)
        return items

    def _take(self, records: list[SpoolRecord]) -> list[Item]:
        fresh = [record for record in records if record.position >= self._next]
        if not fresh:
            return []
        self._skip_to(fresh[0].position)
        settled = self.progress.settled
        if fresh[0].position >= settled:
            return self._take_part(fresh, again=False)
        before = [record for record in fresh if record.position < settled]
        items = self._take_part(before, again=True)
        if len(before) < len(fresh):
            self._skip_to(fresh[len(before)].position)
            items += self._take_part(fresh[len(before) :], again=False)
        return items

    def _take_part(self, fresh: list[SpoolRecord], *, again: bool) -> list[Item]:
        """Make a chunk of records; of those that are sent again nothing is counted twice."""
        first, self._next = fresh[0].position, fresh[-1].position + 1
        if self.is_stale(self._created_ms):
            self.quarantine(TOO_OLD_AGAIN if again else TOO_OLD)
            self.lose(self._losses.stale(first, self._next, self.marks.taken))
            self._mark_end(first)
            return []
        if self._next - first > len(fresh):  # gaps, which damage or a failed fsync left
            for one, other in pairwise(fresh):
                self._miss(one.position + 1, other.position)
        chunk = Chunk(self, len(fresh), self._next, self._path, self._created_ms, again=again)
        self._chunks.append(chunk)
        items = self._items(fresh, chunk)
        if not items:
            self.settle()
        return items

    def _items(self, records: list[SpoolRecord], chunk: Chunk) -> list[Item]:
        """Return the records without their secrets; what cannot be scrubbed does not go out."""
        scrub = self._scrub
        if scrub is None:
            return [Item(record.key, record.event, chunk) for record in records]
        before, items = scrub.replaced, []
        for record in records:
            try:
                items.append(Item(record.key, scrub(record.event), chunk))
            except ValueError as error:
                if not chunk.again:
                    self.keep(record.event, f"cannot be scrubbed: {error}")
                    self.lose(1)
                chunk.left -= 1
        if not chunk.again:
            chunk.scrubbed = scrub.replaced - before
        return items

    def _skip_to(self, position: int) -> None:
        """Count positions that are not there any more: dropped at the limit, or damaged."""
        if position > self._next:
            first, self._next = self._next, position
            if missing := self._miss(first, position):
                log.error(
                    "%d events of spool %s are missing before position %d: dropped at the limit, "
                    "or damaged",
                    missing,
                    self.name,
                    position,
                )
            self._mark_end(first)

    def _miss(self, first: int, end: int) -> int:
        """Count positions that are in no file, those not counted before; return how many."""
        missing = self._losses.missing(first, end, self.marks.taken)
        self.lose(missing)
        return missing

    def _mark_end(self, first: int) -> None:
        """Be through with what is not sent, from `first` on; for good if nothing before is kept."""
        self._chunks.append(Chunk(self, 0, self._next, self._path, self._created_ms))
        self.settle()
        if first <= self.marks.taken:
            self.take_in(self._next)

    def _pass_over(self, data: bytes) -> None:
        """Go on behind what is no record, or to the next segment."""
        following = self._later()
        torn = following is None or following[0] <= self._next
        if data:
            at = find_record(data, self._next)
            if at is None and len(data) == READ_BYTES:
                at = len(data) - MAX_RECORD_BYTES
            if at is not None or not torn:
                self.quarantine(f"is damaged at byte {self._offset}")
            else:
                log.info("%s ends in half an event, which emit() never returned", self._path)
            if at is not None:
                self._offset += at
                return
        if self._final:
            self._advance()

    def _later(self) -> tuple[int, Path] | None:
        """Return the segment after the one being read."""
        try:
            there = segments(self.folder)
        except FileNotFoundError:
            return None
        current = int(self._path.stem) if self._file >= 0 else -1
        return next((found for found in there if found[0] > current), None)

    def _advance(self) -> None:
        """Open the next segment; without one, wait for it, or be done where nobody writes."""
        following = self._later() if self._file >= 0 else self._first()
        if self._file >= 0:
            if following is not None:
                self._skip_to(following[0])
            os.close(self._file)
            self._file = -1
            self._passed.append((self._next, self._path))
            self._release()
        if following is None:
            self._exhausted = self._dead
            return
        self._final = self._dead  # nobody writes there any more: all of it is there
        self._open(following[1])

    def _first(self) -> tuple[int, Path] | None:
        """Return the segment that holds the next position, or the first after it."""
        try:
            there = segments(self.folder)
        except FileNotFoundError:
            return None
        done = {path for _end, path in self._passed}
        there = [found for found in there if found[1] not in done]
        below = [found for found in there if found[0] <= self._next]
        for _first, path in below[:-1]:
            path.unlink(missing_ok=True)  # all of it is settled: the next one begins below
        return below[-1] if below else next(iter(there), None)

    def _open(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # dropped at the limit: the next look finds its successor
            return
        self._path = path
        header = unpack_header(os.pread(self._file, HEADER_BYTES, 0))
        self._offset, self._created_ms = HEADER_BYTES, header[1] if header else self._now_ms()
        if header is None:
            self.quarantine("has no header of ours")

    def is_stale(self, created_ms: int) -> bool:
        """Whether what a segment of that age holds must not be shipped any more."""
        return self._now_ms() - created_ms > self._max_age_ms

    def lose(self, count: int) -> None:
        """Count events that will not be sent."""
        self.progress.lost += count
        self._on_lost(count)

    def settle(self) -> None:
        """Move the acknowledgement up to the oldest event still on its way."""
        sent = self.marks.sent
        while self._chunks and self._chunks[0].left == 0:
            chunk = self._chunks.popleft()
            sent = max(sent, chunk.end)
            self.progress.scrubbed += chunk.scrubbed
        if sent > self.marks.sent and self.marks.advance(sent):
            self._release()

    def _release(self) -> None:
        while self._passed and self._passed[0][0] <= self.marks.taken:
            self._passed.popleft()[1].unlink(missing_ok=True)

    def retain(self, *, keep: bool) -> None:
        """Keep what is acknowledged until `take_in`, or not. Raises `OSError`."""
        if self.marks.keep(keep=keep):
            self._release()

    def take_in(self, position: int) -> None:
        """Note that what is below a position, which was sent, is where no broker can lose it."""
        if self.marks.take_in(position):
            self._release()

    def give_up_oldest(self) -> int:
        """Delete the oldest segment, if all is acknowledged; return how many events were kept."""
        if not self._passed or self._passed[0][0] > self.marks.sent:
            return 0
        position = self._passed[0][0]
        count = max(0, position - self.marks.taken)
        self.take_in(position)
        return count

    def rewind(self) -> int:
        """Read again what was not taken in: the log is lost. Return how many had been sent.

        The sender must have dropped the items of earlier reads.
        """
        count = self.marks.rewind()
        self._losses.read_again(self._next)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._chunks.clear()
        self._passed.clear()
        self._next = self.marks.sent
        self._exhausted = self._final = self._damaged = False
        self._suspect = self._attended = -1
        self._tail = SegmentTail.END
        self._advance()
        return count

    def keep(self, event: bytes, reason: str) -> None:
        """Put one event that the broker will never take into quarantine."""
        keep_event(self.folder, event, reason)

    def quarantine(self, reason: str, path: Path | None = None) -> None:
        """Keep a copy of a segment (that being read) out of the shipper's way, once."""
        path = path or self._path
        if path not in self._quarantined:
            self._quarantined.add(path)
            keep_segment(path, reason)

    def remove(self) -> None:
        """Delete the spool, which is finished."""
        self.close()
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)
        self.folder.rmdir()

    def close(self) -> None:
        """Let go of the files; what is not settled is read again by whoever comes next."""
        if self._marks is not None:
            self._marks.close()
        for name in ("_file", "_lock"):
            descriptor = getattr(self, name)
            setattr(self, name, -1)
            if descriptor >= 0:
                os.close(descriptor)
