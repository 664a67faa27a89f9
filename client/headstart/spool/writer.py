"""The spool of one process: events appended to files until the broker has them. The writing side.

Reading is `backlog`'s, sending `shipper`'s; which file is what, `directory` says. An append may be
cut short by an exception after any call (Ctrl-C in a notebook): no position is taken twice.
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
from os import PathLike
from pathlib import Path
from typing import Final, Literal, get_args

import orjson

from headstart.arguments.checks import InvalidArgument, choice, number
from headstart.spool.disk_usage import DiskUsage
from headstart.spool.layout import (
    ACKED_FILE,
    NEW,
    SPOOL_FILE,
    Progress,
    SpoolTarget,
    SpoolUnavailable,
    read_progress,
    read_sent,
    segment_name,
    segments,
    sync_folder,
    write_progress,
)
from headstart.spool.segment_format import HEADER_BYTES, pack_header, pack_record, pack_seal

OnFull = Literal["raise", "block", "drop_oldest"]
ON_FULL: Final[tuple[str, ...]] = get_args(OnFull)

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BufferFull(RuntimeError):
    """More events wait for the broker than may; this one was not taken, none before it dropped."""


@dataclass(frozen=True)
class SpoolSettings:
    """How an emitter keeps events on disk.

    `directory`: shared by any number of processes. `limit_bytes`: of the whole directory, checked
    whenever a segment of `segment_bytes` (or `segment_s` seconds) is full. `on_full`: `raise`
    BufferFull, `block` the caller, or `drop_oldest` segments, counted. `fsync`: `never` (survives
    kill -9), `every` event, or at an `interval` of `fsync_s` seconds (survive power loss).
    """

    directory: Path
    limit_bytes: int = 1 << 30
    segment_bytes: int = 8 << 20
    segment_s: float = 3600.0
    on_full: OnFull = "raise"
    fsync: Literal["never", "interval", "every"] = "never"
    fsync_s: float = 1.0

    def __post_init__(self) -> None:
        """Raise `ValueError` naming a setting that means nothing."""
        if not self.directory or not isinstance(self.directory, str | PathLike):
            raise InvalidArgument(f"directory must be a path, not {self.directory!r:.100}")
        choice("on_full", self.on_full, ON_FULL)
        choice("fsync", self.fsync, ("never", "interval", "every"))
        for name in ("limit_bytes", "segment_bytes"):
            number(name, getattr(self, name), 1, whole=True)
        number("segment_s", self.segment_s, 0.0, float("inf"))
        number("fsync_s", self.fsync_s, 0.0)


@dataclass
class SpoolWriter:
    """One process's append-only log of events. Callers hold a lock around `append`.

    Positions start at 0 and only grow; the id is never used again, not even by a fork.
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
    _look_at: int = field(default=0, init=False)  # size from which an append has more to do
    _ends_ms: float = field(default=0.0, init=False)
    _others: int | None = field(default=None, init=False)  # bytes beside the segment, looked ahead
    _ahead_from: int = field(default=-1, init=False)  # its size when that look began
    _full: bool = field(default=False, init=False)
    _drops: list[tuple[int, int]] = field(default_factory=list, init=False)  # positions, from, to
    _left: deque[int] = field(default_factory=deque, init=False)  # segments that are to be synced
    _renamed: bool = field(default=False, init=False)
    _syncing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """Make the spool's directory, lock it, and show it to readers complete."""
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
            write_progress(self._acked, Progress())  # a full disk must not hinder it later
            making.rename(self.folder)
        except OSError as error:
            self.close()
            shutil.rmtree(making, ignore_errors=True)
            raise SpoolUnavailable(
                error.errno,
                f"cannot keep events in the spool directory {directory} ({error.strerror}): name "
                "one that can be written with spool=DIR or HEADSTART_SPOOL, or do without by "
                "durable=False",
            ) from error
        self._segment_limit = min(self.settings.segment_bytes, self.settings.limit_bytes // 4)

    def append(self, key: bytes, event: bytes, now_ms: int | None = None) -> bool:
        """Append one event at position `next`; return False where the spool is full.

        `now_ms`: Unix ms, where the caller knows it. Raises `OSError` where the disk fails for
        another reason than being full.
        """
        if now_ms is None:
            now_ms = self.now_ms()
        if self._size >= self._look_at or now_ms >= self._ends_ms:
            try:
                if not self._go_on(now_ms):
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
            self._count_if_there(start, len(data))
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
        # Half a record: take it back. Where even that fails readers see a torn end, and the
        # next event begins a new segment.
        try:
            os.ftruncate(self._segment, self._size)
        except OSError:
            self._let_go()
        return False

    def _count_if_there(self, start: int, length: int) -> None:
        """Note an event that an exception cut short, if it is on disk; take back a part of it."""
        there = True  # where nobody can tell: a gap is counted, a position taken twice is a loss
        try:
            size = os.fstat(self._segment).st_size
            there = size == start + length
            if not there and size != start:
                os.ftruncate(self._segment, start)
        except OSError:
            self._let_go()
        else:
            self._size = start + length if there else start
        self.next += there

    def _go_on(self, now_ms: int) -> bool:
        """See to the next segment: look for room from half of this one on, begin it when it is due.

        Return False where the directory has reached its limit.
        """
        if self._lock < 0:  # by a signal handler in mid-append, or in a fork of one
            raise RuntimeError("this spool is closed: whoever ships it may be through with it")
        if self._segment >= 0 and self._size <= HEADER_BYTES:
            self._ends_ms = now_ms + self.settings.segment_s * 1000  # no other would have its name
            return True
        if self._segment >= 0 and self._size < self._segment_limit and now_ms < self._ends_ms:
            self._look_ahead()
            return True
        room = self._has_room()
        if room is None:  # more spools than a caller may wait for: on in the segment there is
            return not self._full
        self._full = not room
        if room:
            self._rotate(now_ms)
        return room

    def _look_ahead(self) -> None:
        """Look at one more spool, so that all are known when the next segment is due."""
        if self._ahead_from < 0:
            self._ahead_from = self._size
        used = self._usage.look(1)
        if used is not None:
            self._others, self._look_at = used - self._ahead_from, self._segment_limit

    def _has_room(self) -> bool | None:
        """Return whether the directory has room for a segment; None where that is not known yet."""
        most = self.settings.limit_bytes - self._segment_limit
        if self._others is not None and self._others + self._size <= most:
            return True
        self._others = None
        used = self._usage.look()
        if used is not None:
            return used <= most
        # Without a segment to go on in, the next is what an emitter may exceed the limit by.
        return True if self._segment < 0 and not self._full else None

    def _rotate(self, now_ms: int) -> None:
        """Begin a new segment."""
        self._leave_segment()
        final = self.folder / segment_name(self.next)
        try:  # where an exception ended the call that began it
            segment = os.open(final, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            segment = self._made(final, now_ms)
        size, ends_ms = os.fstat(segment).st_size, now_ms + self.settings.segment_s * 1000
        # No call in between: an exception finds all of this done, or none.
        self._size = size
        self._ends_ms = ends_ms
        self._look_at = self._segment_limit // 2
        self._others = None
        self._ahead_from = -1
        self._segment = segment
        self._renamed = True
        if self.settings.fsync == "every":
            self._sync_names()

    def _made(self, final: Path, now_ms: int) -> int:
        """Return a new segment. A reader must not meet it before its header, or half of that."""
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

    def _leave_segment(self) -> None:
        if self._segment < 0:
            return
        try:
            self._write(pack_seal(self.next))
            if self.settings.fsync == "every":
                os.fsync(self._segment)
        finally:
            if self.settings.fsync == "interval" and self._segment >= 0:
                segment, self._segment, self._look_at = self._segment, -1, 0
                self._left.append(segment)  # a disk may take long, which no caller must wait for
            self._let_go()

    def _let_go(self) -> None:
        segment, self._segment, self._look_at = self._segment, -1, 0
        if segment >= 0:
            os.close(segment)

    def drop_oldest(self) -> tuple[bool, int]:
        """Delete this spool's oldest segment; return whether there was one, and its events.

        Those that the shipper has already read may still arrive: the count is an upper bound.
        Where only the segment in use is left, that one goes.
        """
        there = segments(self.folder)
        if not there or (len(there) == 1 and self._segment >= 0 and self._size <= HEADER_BYTES):
            return False, 0
        first, oldest = there[0]
        end = there[1][0] if len(there) > 1 else self.next
        if len(there) == 1:
            self._leave_segment()
        oldest.unlink(missing_ok=True)
        self._full = False
        count = max(0, end - max(first, self._in_log()))
        self.dropped += count
        self._note_drop(end - count, end)
        return True, count

    def _note_drop(self, first: int, end: int) -> None:
        """Remember dropped positions until the shipper has come to them."""
        settled = self.progress().settled
        drops = [span for span in self._drops if span[1] > settled]
        if drops and drops[-1][1] == first:
            first = drops.pop()[0]
        if first < end:
            drops.append((first, end))
        self._drops = drops  # replaced as a whole: other threads read it

    def dropped_between(self, first: int, end: int) -> int:
        """Return how many of these positions were dropped at the limit. From any thread."""
        return sum(max(0, min(end, b) - max(first, a)) for a, b in self._drops)

    def drop_acknowledged(self) -> bool:
        """Delete the oldest segment if the broker has all of it; return whether there was one.

        The shipper keeps such segments where the broker keeps its log in memory only: they are
        worth less than an event that has not been sent at all.
        """
        there = segments(self.folder)
        if len(there) < 2 or there[1][0] > self._in_log():
            return False
        there[0][1].unlink(missing_ok=True)
        self._full = False
        return True

    def progress(self) -> Progress:
        """Return what the shipper has acknowledged."""
        if self._acked < 0:
            return Progress()
        for _attempt in range(100):
            found = read_progress(self._acked)
            if found is not None:
                return found
        return Progress()

    def _in_log(self) -> int:
        """Return below which position all is in the broker's log, as far as the shipper knows.

        Where a log was lost that is less than what was acknowledged.
        """
        settled = self.progress().settled
        sent = None if self._acked < 0 else read_sent(self._acked)
        return settled if sent is None else min(settled, sent)

    def sync(self) -> None:
        """Bring what was appended to the disk itself. From any thread."""
        with self._syncing:
            if self._renamed:
                self._renamed = False
                self._sync_names()
            # First that in use: where it is left meanwhile it is in the queue, and still open.
            if (segment := self._segment) >= 0:
                os.fsync(segment)
            while self._left:
                left = self._left.popleft()
                try:
                    os.fsync(left)
                finally:
                    os.close(left)

    def _sync_names(self) -> None:
        for folder in (self.folder, self.settings.directory):
            sync_folder(folder)

    def close(self) -> None:
        """Let go of the files: from here on the spool is only drained. Twice is harmless."""
        try:
            self._leave_segment()
            if self.settings.fsync == "interval":
                self.sync()
        finally:
            self._usage.close()
            with self._syncing:
                self.abandon()

    def abandon(self) -> None:
        """Close the descriptors and touch nothing: for a fork, which shares them."""
        while self._left:
            os.close(self._left.popleft())
        for name in ("_segment", "_acked", "_lock"):
            descriptor = getattr(self, name)
            setattr(self, name, -1)
            if descriptor >= 0:
                os.close(descriptor)
