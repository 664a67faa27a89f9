"""The spool of one process: events appended to files until the broker has them. The writing side.

Reading is `backlog`'s, sending `shipper`'s; which file is what, `directory` says.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import orjson

from headstart.directory import (
    ACKED_FILE,
    NEW,
    SPOOL_FILE,
    Progress,
    SpoolUnavailable,
    Target,
    read_progress,
    segment_name,
    segments,
    sync_folder,
    used_bytes,
    write_progress,
)
from headstart.records import HEADER_BYTES, pack_header, pack_record, pack_seal

OnFull = Literal["raise", "block", "drop_oldest"]

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


@dataclass
class Spool:
    """One process's append-only log of events. Callers hold a lock around `append`.

    Positions start at 0 and only grow; the id is never used again, not even by a fork.
    """

    id: str
    settings: SpoolSettings
    target: Target
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    next: int = 0
    dropped: int = 0
    _lock: int = field(default=-1, init=False)
    _acked: int = field(default=-1, init=False)
    _segment: int = field(default=-1, init=False)
    _size: int = field(default=0, init=False)
    _created_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Make the spool's directory, lock it, and show it to readers complete."""
        directory = self.settings.directory
        self.folder = directory / self.id
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
            raise SpoolUnavailable(
                error.errno,
                f"cannot keep events in the spool directory {directory} ({error.strerror}): name "
                "one that can be written with spool=DIR or HEADSTART_SPOOL, or do without by "
                "durable=False",
            ) from error
        self._segment_limit = min(self.settings.segment_bytes, self.settings.limit_bytes // 4)

    def append(self, key: bytes, event: bytes) -> bool:
        """Append one event at position `next`; return False where the spool is full.

        Raises `OSError` where the disk fails for another reason than being full.
        """
        if self._segment < 0 or self._is_over():
            try:
                if not self._rotate():
                    return False
            except OSError as error:
                if error.errno in _FULL:
                    return False
                raise
        data = pack_record(self.next, key, event)
        if not self._write(data):
            return False
        self.next += 1
        if self.settings.fsync == "every":
            os.fsync(self._segment)
        return True

    def _is_over(self) -> bool:
        return (
            self._size >= self._segment_limit
            or self.now_ms() - self._created_ms >= self.settings.segment_s * 1000
        )

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
            os.close(self._segment)
            self._segment = -1
        return False

    def _rotate(self) -> bool:
        """Begin a new segment; False where the directory has reached its limit."""
        used = used_bytes(self.settings.directory)
        if used + self._segment_limit > self.settings.limit_bytes:
            return False
        self._leave_segment()
        created_ms = self.now_ms()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        # A reader may meet the file before its header: written in one go, below its final name.
        making = self.folder / f"{NEW}{segment_name(self.next)}"
        segment = os.open(making, flags, 0o600)
        try:
            os.write(segment, pack_header(self.next, created_ms))
            if os.fstat(segment).st_size != HEADER_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            making.rename(self.folder / segment_name(self.next))
        except OSError:
            os.close(segment)
            raise
        self._segment, self._size, self._created_ms = segment, HEADER_BYTES, created_ms
        if self.settings.fsync != "never":
            for folder in (self.folder, self.settings.directory):
                sync_folder(folder)
        return True

    def _leave_segment(self) -> None:
        if self._segment < 0:
            return
        try:
            self._write(pack_seal(self.next))
            if self.settings.fsync != "never":
                os.fsync(self._segment)
        finally:
            if self._segment >= 0:
                os.close(self._segment)
            self._segment = -1

    def drop_oldest(self) -> tuple[bool, int]:
        """Delete this spool's oldest segment; return whether there was one, and its events.

        Those that the shipper has already read may still arrive: the count is an upper bound.
        Where only the segment in use is left, that one goes.
        """
        there = segments(self.folder)
        if not there:
            return False, 0
        first, oldest = there[0]
        end = there[1][0] if len(there) > 1 else self.next
        if len(there) == 1:
            self._leave_segment()
        oldest.unlink(missing_ok=True)
        count = max(0, end - max(first, self.progress().settled))
        self.dropped += count
        return True, count

    def progress(self) -> Progress:
        """Return what the shipper has acknowledged."""
        if self._acked < 0:
            return Progress()
        for _attempt in range(100):
            found = read_progress(self._acked)
            if found is not None:
                return found
        return Progress()

    def sync(self) -> None:
        """Bring what was appended to the disk itself."""
        if self._segment >= 0:
            os.fsync(self._segment)

    def close(self) -> None:
        """Let go of the files: from here on the spool is only drained. Twice is harmless."""
        try:
            self._leave_segment()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the descriptors and touch nothing: for a fork, which shares them."""
        for name in ("_segment", "_acked", "_lock"):
            descriptor = getattr(self, name)
            setattr(self, name, -1)
            if descriptor >= 0:
                os.close(descriptor)
