"""File layout of a directory of spools, and the small files that emitters and shippers share.

`DIR/<spool id>/` holds `spool.json` (target; locked while its process lives), `acked` (written by
the shipper), segments `<first position>.log`, and `purged`, if a purge removed events. Events that
could not be sent are in `DIR/quarantine`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from headstart.codecs import Compression
from headstart.scrubbing.scrubber import Scrubbing, read_scrubbing

SPOOL_FILE: Final = "spool.json"
ACKED_FILE: Final = "acked"
PURGED_FILE: Final = "purged"
QUARANTINE: Final = "quarantine"
CLIENT_ID: Final = "headstart"
UNFINISHED_S: Final = 60.0
"""Age at which an incomplete spool is abandoned."""
NEW: Final = ".new-"
"""Prefix of a spool or segment that is being created: readers ignore it."""
_ACKED = struct.Struct("<QQQI")
ACKED_BYTES: Final = _ACKED.size
_MARK = struct.Struct("<QI")
_CONSUMED_AT: Final = 64
"""Offset of the second mark in the acknowledgement file; older readers ignore it."""
_ACKNOWLEDGED_AT: Final = _CONSUMED_AT + _MARK.size


class SpoolUnavailable(OSError):
    """The spool directory cannot be created or written; the message names it and the remedy."""


@dataclass(frozen=True)
class SpoolTarget:
    """Where a spool's events are sent, and how.

    `linger_s`: most seconds that a frame waits for more events. `client_id`: for the broker's
    quotas. `profile`: name of the connection's security, "" for plain text; secrets are never
    written here.
    """

    kafka: str
    topic: str
    linger_s: float
    compression: Compression | None = None
    scrub: Scrubbing = field(default_factory=Scrubbing)
    client_id: str = CLIENT_ID
    profile: str = ""


def described_target(described: Mapping[str, Any]) -> SpoolTarget:
    """Return the target in a spool's description. Raises `KeyError`, `TypeError`, `ValueError`."""
    return SpoolTarget(
        described["kafka"],
        described["topic"],
        float(described["linger_s"]),
        described.get("compression"),
        read_scrubbing(described.get("scrub", {})),
        str(described.get("client_id", CLIENT_ID)),
        str(described.get("profile", "")),
    )


@dataclass
class Progress:
    """Progress of a spool: positions below `settled` are done, `lost` of them were never sent.

    `scrubbed`: number of secrets replaced in those that were sent.
    """

    settled: int = 0
    lost: int = 0
    scrubbed: int = 0


def default_directory() -> Path:
    """Return HEADSTART_SPOOL, else the user's state directory. Raises `SpoolUnavailable`."""
    named = os.environ.get("HEADSTART_SPOOL")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if not os.path.isabs(state):
        raise SpoolUnavailable("this user has no home directory: set HEADSTART_SPOOL, or spool=DIR")
    return Path(state) / "headstart" / "spool"


def decisions_directory(events: Path) -> Path:
    """Return the spool directory of decisions: beside that of events."""
    return events.with_name(f"{events.name}-decisions")


def segment_name(first: int) -> str:
    """Return the file name of the segment whose first record has position `first`."""
    return f"{first:016d}.log"


def segments(folder: Path) -> list[tuple[int, Path]]:
    """Return (first position, path) of a spool's segments, oldest first."""
    with os.scandir(folder) as files:
        names = [file.name for file in files]
    firsts = sorted(int(n[:-4]) for n in names if n.endswith(".log") and n[:-4].isdigit())
    return [(first, folder / segment_name(first)) for first in firsts]


def is_spool_file(name: str) -> bool:
    """Return whether a spool's folder has files of this name; others are not Headstart's."""
    is_segment = name.endswith(".log") and name[:-4].isdigit()
    return name in (SPOOL_FILE, ACKED_FILE, PURGED_FILE) or is_segment or name.startswith(NEW)


def spool_names(directory: Path) -> set[str]:
    """Return the names of all complete spools. Raises `OSError`."""
    with os.scandir(directory) as entries:
        return {
            entry.name
            for entry in entries
            if entry.name != QUARANTINE and not entry.name.startswith(NEW) and entry.is_dir()
        }


def write_progress(descriptor: int, progress: Progress) -> None:
    """Write an acknowledgement file in one small write."""
    counts = (progress.settled, progress.lost, progress.scrubbed)
    os.pwrite(descriptor, _ACKED.pack(*counts, crc32(b"%d %d %d" % counts)), 0)


def read_progress(descriptor: int) -> Progress | None:
    """Read an acknowledgement file; None during a write, or if it is damaged."""
    data = os.pread(descriptor, ACKED_BYTES, 0)
    if len(data) < ACKED_BYTES:
        return Progress() if not data else None
    *counts, check = _ACKED.unpack(data)
    return Progress(*counts) if crc32(b"%d %d %d" % tuple(counts)) == check else None


def write_marks(descriptor: int, consumed: int, acknowledged: int) -> None:
    """Write the second pair of marks: positions below `consumed` never need to be sent again.

    Positions below `acknowledged` are in the broker's present log; may be fewer than are settled.
    """
    data = _pack_mark(b"taken", consumed) + _pack_mark(b"sent", acknowledged)
    os.pwrite(descriptor, data, _CONSUMED_AT)


def _pack_mark(name: bytes, position: int) -> bytes:
    return _MARK.pack(position, crc32(b"%s %d" % (name, position)))


def read_consumed(descriptor: int) -> int | None:
    """Read the consumed position; None if the spool never retained acknowledged events."""
    return _read_mark(descriptor, b"taken", _CONSUMED_AT, damaged=None)


def read_acknowledged(descriptor: int) -> int | None:
    """Read the acknowledged position; None if there is none, 0 if it is damaged."""
    return _read_mark(descriptor, b"sent", _ACKNOWLEDGED_AT, damaged=0)


def _read_mark(descriptor: int, name: bytes, offset: int, damaged: int | None) -> int | None:
    data = os.pread(descriptor, _MARK.size, offset)
    if len(data) < _MARK.size:
        return None
    position = int(_MARK.unpack(data)[0])
    return position if data == _pack_mark(name, position) else damaged


def sync_folder(path: Path) -> None:
    """fsync a directory, so that its new names survive power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Remove a spool whose process died before it was complete, so before any event.

    One that holds other files stays.
    """
    try:
        if time.time() - folder.stat().st_mtime < UNFINISHED_S:
            return
        lock = os.open(folder / SPOOL_FILE, os.O_RDWR)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        paths = list(folder.iterdir())
        if not all(is_spool_file(path.name) for path in paths):
            return
        for path in paths:
            path.unlink(missing_ok=True)
        folder.rmdir()
    except OSError:
        return
    finally:
        os.close(lock)
