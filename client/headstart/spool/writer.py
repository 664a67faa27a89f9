"""Writes the spool of one process: events appended to segment files until the broker has them.

`SpoolReader` reads it, `Shipper` sends it. An exception may interrupt an append after any call
(Ctrl-C in a notebook): no position is used twice.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from headstart.spool.disk_usage import DiskUsage
from headstart.spool.layout import (
    ACKED_FILE,
    NEW,
    SPOOL_FILE,
    Progress,
    SpoolTarget,
    SpoolUnavailable,
    read_acknowledged,
    read_progress,
    segment_name,
    segments,
    sync_folder,
    write_progress,
)
from headstart.spool.segment_format import HEADER_BYTES, pack_header, pack_record, pack_seal
from headstart.spool.settings import SpoolSettings

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class SpoolWriter:
    """The append-only log of one process. Callers hold a lock around `append`.

    Positions start at 0 and only grow; the id is never reused, not even by a fork.
    """

    id: str
    settings: SpoolSettings
    target: SpoolTarget
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    next: int = 0
    dropped: int = 0
    _lock: int = field(default=-1, init=False)
    _acked: int = field(default=-1, init=False)
    _segment: int = field(default=-1, init=False)
    _size: int = field(default=0, init=False)
    _check_at_size: int = field(default=0, init=False)  # size at which `append` does more
    _ends_ms: float = field(default=0.0, init=False)
    _other_bytes: int | None = field(default=None, init=False)  # of other segments, measured ahead
    _ahead_from: int = field(default=-1, init=False)  # own size when that measurement began
    _full: bool = field(default=False, init=False)
    _drops: list[tuple[int, int]] = field(default_factory=list, init=False)  # (first, end)
    _unsynced: deque[int] = field(default_factory=deque, init=False)  # left segments
    _names_unsynced: bool = field(default=False, init=False)
    _syncing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """Create and lock the spool's directory; readers see it when it is complete."""
        directory = self.settings.directory
        self.folder = directory / self.id
        self._usage = DiskUsage(directory)
        making = directory / f"{NEW}{self.id}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            making.mkdir(mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            self._lock = os.open(making / SPOOL_FILE, flags, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            described = {**self.target.__dict__, "pid": os.getpid(), "created_ms": self.now_ms()}
            os.write(self._lock, orjson.dumps(described))
            self._acked = os.open(making / ACKED_FILE, flags, 0o600)
            write_progress(self._acked, Progress())  # allocated now, for when the disk is full
            making.rename(self.folder)
        except OSError as error:
            self.close()
            shutil.rmtree(making, ignore_errors=True)
            raise SpoolUnavailable(
                error.errno,
                f"cannot write to the spool directory {directory} ({error.strerror}): name a "
                "writable one with spool=DIR or HEADSTART_SPOOL, or keep events in memory with "
                "durable=False",
            ) from error
        self._segment_limit = min(self.settings.segment_bytes, self.settings.limit_bytes // 4)

    def append(self, key: bytes, event: bytes, now_ms: int | None = None) -> bool:
        """Append one event at position `next`; return False if the spool is full.

        `now_ms`: Unix ms, default now. Raises `OSError` if the disk fails but is not full.
        """
        if now_ms is None:
            now_ms = self.now_ms()
        if self._size >= self._check_at_size or now_ms >= self._ends_ms:
            try:
                if not self._begin_segment_if_due(now_ms):
                    return False
            except OSError as error:
                if error.errno in _FULL:
                    return False
                raise
        data, start = pack_record(self.next, key, event), self._size
        try:
            if not self._write(data):
                return False
        except OSError:
            raise
        except BaseException:
            self._count_if_written(start, len(data))
            raise
        self.next += 1
        if self.settings.fsync == "every":
            os.fsync(self._segment)
        return True

    def _write(self, data: bytes) -> bool:
        try:
            written = os.write(self._segment, data)
        except OSError as error:
            if error.errno in _FULL:
                return False
            raise
        if written == len(data):
            self._size += written
            return True
        # A partial record: truncate it. If even that fails, readers see a torn end, and the next
        # event starts a new segment.
        try:
            os.ftruncate(self._segment, self._size)
        except OSError:
            self._close_segment()
        return False

    def _count_if_written(self, start: int, length: int) -> None:
        """Count an event whose append was interrupted, if it is on disk; truncate a part of it."""
        there = True  # if unknown: a gap is only counted, a position used twice is a loss
        try:
            size = os.fstat(self._segment).st_size
            there = size == start + length
            if not there and size != start:
                os.ftruncate(self._segment, start)
        except OSError:
            self._close_segment()
        else:
            self._size = start + length if there else start
        self.next += there

    def _begin_segment_if_due(self, now_ms: int) -> bool:
        """Start the next segment if it is due; from half of this one on, measure the directory.

        Return False if the directory has reached its limit.
        """
        if self._lock < 0:  # closed by a signal handler during an append, or in a fork
            raise RuntimeError("the spool is closed and may already have been removed")
        if self._segment >= 0 and self._size <= HEADER_BYTES:
            self._ends_ms = now_ms + self.settings.segment_s * 1000  # empty: keep it
            return True
        if self._segment >= 0 and self._size < self._segment_limit and now_ms < self._ends_ms:
            self._measure_ahead()
            return True
        room = self._has_room()
        if room is None:  # too many spools to measure now: continue this segment
            return not self._full
        self._full = not room
        if room:
            self._rotate(now_ms)
        return room

    def _measure_ahead(self) -> None:
        """Measure one more spool, so that all are measured when the next segment is due."""
        if self._ahead_from < 0:
            self._ahead_from = self._size
        used = self._usage.measure(1)
        if used is not None:
            self._other_bytes, self._check_at_size = used - self._ahead_from, self._segment_limit

    def _has_room(self) -> bool | None:
        """Return whether the directory has room for a segment; None if not measured yet."""
        most = self.settings.limit_bytes - self._segment_limit
        if self._other_bytes is not None and self._other_bytes + self._size <= most:
            return True
        self._other_bytes = None
        used = self._usage.measure()
        if used is not None:
            return used <= most
        # Without a segment, start one: an emitter may exceed the limit by one segment.
        return True if self._segment < 0 and not self._full else None

    def _rotate(self, now_ms: int) -> None:
        """Start a new segment."""
        self._seal_segment()
        final = self.folder / segment_name(self.next)
        try:  # it exists if an exception interrupted the call that created it
            segment = os.open(final, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            segment = self._create_segment(final, now_ms)
        size, ends_ms = os.fstat(segment).st_size, now_ms + self.settings.segment_s * 1000
        # No calls in between: an exception finds all of this done, or nothing.
        self._size = size
        self._ends_ms = ends_ms
        self._check_at_size = self._segment_limit // 2
        self._other_bytes = None
        self._ahead_from = -1
        self._segment = segment
        self._names_unsynced = True
        if self.settings.fsync == "every":
            self._sync_folders()

    def _create_segment(self, final: Path, now_ms: int) -> int:
        """Create a segment. It is renamed when its header is complete, so readers see it whole."""
        making = self.folder / f"{NEW}{final.name}"
        segment = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            os.write(segment, pack_header(self.next, now_ms))
            if os.fstat(segment).st_size != HEADER_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(making, final)
        except BaseException:
            os.close(segment)
            raise
        return segment

    def _seal_segment(self) -> None:
        if self._segment < 0:
            return
        try:
            self._write(pack_seal(self.next))
            if self.settings.fsync == "every":
                os.fsync(self._segment)
        finally:
            if self.settings.fsync == "interval" and self._segment >= 0:
                segment, self._segment, self._check_at_size = self._segment, -1, 0
                self._unsynced.append(segment)  # fsync may take long; the thread does it
            self._close_segment()

    def _close_segment(self) -> None:
        segment, self._segment, self._check_at_size = self._segment, -1, 0
        if segment >= 0:
            os.close(segment)

    def drop_oldest(self) -> tuple[bool, int]:
        """Delete this spool's oldest segment; return whether there was one, and its event count.

        The count is an upper bound: events that the shipper has already read may still arrive.
        The segment in use is deleted if it is the only one.
        """
        there = segments(self.folder)
        if not there or (len(there) == 1 and self._segment >= 0 and self._size <= HEADER_BYTES):
            return False, 0
        first, oldest = there[0]
        end = there[1][0] if len(there) > 1 else self.next
        if len(there) == 1:
            self._seal_segment()
        oldest.unlink(missing_ok=True)
        self._full = False
        count = max(0, end - max(first, self._acknowledged_below()))
        self.dropped += count
        self._note_drop(end - count, end)
        return True, count

    def _note_drop(self, first: int, end: int) -> None:
        """Remember dropped positions until the shipper has passed them."""
        settled = self.progress().settled
        drops = [span for span in self._drops if span[1] > settled]
        if drops and drops[-1][1] == first:
            first = drops.pop()[0]
        if first < end:
            drops.append((first, end))
        self._drops = drops  # replaced as a whole: other threads read it

    def dropped_between(self, first: int, end: int) -> int:
        """Return how many of these positions were dropped at the limit. Thread-safe."""
        return sum(max(0, min(end, b) - max(first, a)) for a, b in self._drops)

    def drop_acknowledged(self) -> bool:
        """Delete the oldest segment if the broker has all of it; return whether there was one.

        The shipper retains such segments if the broker keeps its log in memory: they are worth less
        than an event that was never sent.
        """
        there = segments(self.folder)
        if len(there) < 2 or there[1][0] > self._acknowledged_below():
            return False
        there[0][1].unlink(missing_ok=True)
        self._full = False
        return True

    def progress(self) -> Progress:
        """Return the progress that the shipper stored."""
        if self._acked < 0:
            return Progress()
        for _attempt in range(100):
            found = read_progress(self._acked)
            if found is not None:
                return found
        return Progress()

    def _acknowledged_below(self) -> int:
        """Return the position below which all events are in the broker's present log.

        After a log was lost, that is less than was acknowledged.
        """
        settled = self.progress().settled
        acknowledged = None if self._acked < 0 else read_acknowledged(self._acked)
        return settled if acknowledged is None else min(settled, acknowledged)

    def sync(self) -> None:
        """fsync what was appended. Thread-safe."""
        with self._syncing:
            if self._names_unsynced:
                self._names_unsynced = False
                self._sync_folders()
            # The segment in use first: if it is left meanwhile, it is in the queue and still open.
            if (segment := self._segment) >= 0:
                os.fsync(segment)
            while self._unsynced:
                left = self._unsynced.popleft()
                try:
                    os.fsync(left)
                finally:
                    os.close(left)

    def _sync_folders(self) -> None:
        for folder in (self.folder, self.settings.directory):
            sync_folder(folder)

    def close(self) -> None:
        """Close the files; the shipper drains the spool. Idempotent."""
        try:
            self._seal_segment()
            if self.settings.fsync == "interval":
                self.sync()
        finally:
            self._usage.close()
            with self._syncing:
                self.abandon()

    def abandon(self) -> None:
        """Close the descriptors and change nothing: for a fork, which shares them."""
        while self._unsynced:
            os.close(self._unsynced.popleft())
        for name in ("_segment", "_acked", "_lock"):
            descriptor = getattr(self, name)
            setattr(self, name, -1)
            if descriptor >= 0:
                os.close(descriptor)
