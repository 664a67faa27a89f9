"""What is where in a directory of spools, and the small files that all sides read.

`DIR/<spool id>/` holds `spool.json` (target; locked while its process lives), `acked` (written by
the shipper), and segments `<first position>.log`. What could not be sent is in `quarantine`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from headstart.codecs import Compression
from headstart.scrubbing.scrubber import Scrubbing, read_scrubbing

SPOOL_FILE: Final = "spool.json"
ACKED_FILE: Final = "acked"
QUARANTINE: Final = "quarantine"
CLIENT_ID: Final = "headstart"
NEW: Final = ".new-"
"""Prefix of a spool that is being made: readers leave it alone."""
_ACKED = struct.Struct("<QQQI")
ACKED_BYTES: Final = _ACKED.size
_MARK = struct.Struct("<QI")
_TAKEN_AT: Final = 64
"""Byte of the acknowledgement file at which the second mark begins; older readers ignore it."""
_SENT_AT: Final = _TAKEN_AT + _MARK.size


class SpoolUnavailable(OSError):
    """The spool's directory cannot be made or written; the message names it and the remedy."""


@dataclass(frozen=True)
class SpoolTarget:
    """Where a spool's events go, and how.

    `linger_s`: how long a frame may fill. `client_id`: who sends, as the broker's quotas see it.
    """

    kafka: str
    topic: str
    linger_s: float
    compression: Compression | None = None
    scrub: Scrubbing = field(default_factory=Scrubbing)
    client_id: str = CLIENT_ID


def described_target(described: Mapping[str, Any]) -> SpoolTarget:
    """Return the target in a spool's description. Raises `KeyError`, `TypeError`, `ValueError`."""
    return SpoolTarget(
        described["kafka"],
        described["topic"],
        float(described["linger_s"]),
        described.get("compression"),
        read_scrubbing(described.get("scrub", {})),
        str(described.get("client_id", CLIENT_ID)),
    )


@dataclass
class Progress:
    """What became of a spool: positions below `settled` are through, `lost` of them never sent.

    `scrubbed`: how many values were replaced in those that were.
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


def segment_name(first: int) -> str:
    """Return the file name of the segment whose first record has position `first`."""
    return f"{first:016d}.log"


def segments(folder: Path) -> list[tuple[int, Path]]:
    """Return (first position, path) of a spool's segments, oldest first."""
    with os.scandir(folder) as files:
        names = [file.name for file in files]
    firsts = sorted(int(n[:-4]) for n in names if n.endswith(".log") and n[:-4].isdigit())
    return [(first, folder / segment_name(first)) for first in firsts]


def spool_names(directory: Path) -> set[str]:
    """Return the names of all spools that are complete. Raises `OSError`."""
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
    """Read an acknowledgement file; None where it is caught in mid-write or damaged."""
    data = os.pread(descriptor, ACKED_BYTES, 0)
    if len(data) < ACKED_BYTES:
        return Progress() if not data else None
    *counts, check = _ACKED.unpack(data)
    return Progress(*counts) if crc32(b"%d %d %d" % tuple(counts)) == check else None


def write_taken(descriptor: int, taken: int, sent: int) -> None:
    """Note in an acknowledgement file that positions below `taken` need never be sent again.

    `sent`: positions below are in the broker's present log, which may be fewer than are settled.
    """
    marks = (taken, crc32(b"taken %d" % taken)), (sent, crc32(b"sent %d" % sent))
    os.pwrite(descriptor, b"".join(_MARK.pack(*mark) for mark in marks), _TAKEN_AT)


def read_taken(descriptor: int) -> int | None:
    """Read what `write_taken` wrote; None where a spool never kept what was acknowledged."""
    data = os.pread(descriptor, _MARK.size, _TAKEN_AT)
    if len(data) < _MARK.size:
        return None
    taken, check = _MARK.unpack(data)
    return int(taken) if crc32(b"taken %d" % taken) == check else None


def read_sent(descriptor: int) -> int | None:
    """Read `sent` of `write_taken`; None where there is none, 0 where it cannot be read."""
    data = os.pread(descriptor, _MARK.size, _SENT_AT)
    if len(data) < _MARK.size:
        return None
    sent, check = _MARK.unpack(data)
    return int(sent) if crc32(b"sent %d" % sent) == check else 0


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
