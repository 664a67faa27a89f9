"""What a worker's host must have before the worker joins its group: room on the disk, and the time.

A worker that joined without would end at its first write, and take partitions along each time that
it starts again. It waits instead, and reports for what.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Final

from aiokafka.errors import InvalidTimestampError

from agents.health.probes import Probe, asked
from topics.catalogue import EVENTS
from topics.kafka.admin import topic_settings

LEAST_FREE: Final = 64 << 20
"""Bytes that must be free: RocksDB writes some megabytes for each partition."""
CLOCK_S: Final = 300.0
"""How far a worker's clock may differ from that of a service before that is reported."""
_MARGIN_S: Final = 60.0
"""How much less than the broker accepts a clock may be ahead."""
_LIMIT: Final = "message.timestamp.after.max.ms"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_ROCKSDB_FULL: Final = "No space left on device"
_MOUNTS: Final = Path("/proc/self/mounts")
_CORRECTED: Final = "the worker goes on by itself then"


class HostUnfit(RuntimeError):
    """The worker waits outside its group until its host has what it `lacks`."""

    lacks = ""


class DiskFull(HostUnfit):
    """The disk of the worker's data directory has too little room."""

    lacks = "disk space"

    def __init__(self, data: Path, free: int) -> None:
        super().__init__(
            f"no space left on {disk_of(data)}: {free >> 20} MB are free of the {LEAST_FREE >> 20} "
            f"that {data} needs; free some, {_CORRECTED}"
        )


class ClockAhead(HostUnfit):
    """The broker would refuse the worker's records, because its clock is too far ahead."""

    lacks = "the right time"

    def __init__(self, ahead_s: float, service: str, limit_s: float) -> None:
        super().__init__(
            f"its clock is {ahead_s / 60:.0f} minutes ahead of that of {service}, and the broker "
            f"takes no record that is {limit_s / 60:.0f} minutes ahead ({_LIMIT}): synchronise "
            f"the clocks (NTP), {_CORRECTED}"
        )


def require_room(data: Path) -> None:
    """Raise `DiskFull` if less than `LEAST_FREE` is free on the disk of `data`."""
    free = shutil.disk_usage(data).free
    if free < LEAST_FREE:
        raise DiskFull(data, free)


async def require_time(kafka: str, service: str, probe: Probe) -> None:
    """Raise `ClockAhead` if the broker would refuse this host's time.

    `probe`: asks `service` for its time; what does not answer is not compared. Nor is a broker's
    limit that may not be read or does not exist (Kafka before 3.6). Raises `BrokerUnreachable`.
    """
    ahead_s = (await asked(probe)).ahead_s
    if ahead_s is None or ahead_s < CLOCK_S:
        return
    settings = await topic_settings(kafka, [EVENTS.name])
    limit = settings.get(EVENTS.name, {}).get(_LIMIT)
    if limit is None:
        return
    limit_s = int(limit) / 1000
    if ahead_s > limit_s - _MARGIN_S:
        raise ClockAhead(ahead_s, service, limit_s)


def explained(error: BaseException) -> str | None:
    """Return what is wrong with the host if that is what an error means, and the remedy."""
    if isinstance(error, InvalidTimestampError):
        return (
            "the broker refuses the time of this worker's clock, which is more than an hour wrong: "
            "synchronise the clocks (NTP)"
        )
    if _ROCKSDB_FULL in str(error) or (isinstance(error, OSError) and error.errno in _FULL):
        return f"no space left on the disk of the worker's data directory: free some ({error})"
    return None


def disk_of(path: Path) -> str:
    """Return the device of a path and where it is mounted; only the path if that is not known."""
    found, place = "", path.resolve()
    try:
        mounts = [line.split()[:2] for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return f"the disk of {path}"
    deepest = Path("/")
    for device, encoded in mounts:
        at = Path(encoded.replace("\\040", " "))
        if place.is_relative_to(at) and at.is_relative_to(deepest):
            found, deepest = device, at
    return f"{found} (mounted at {deepest})" if found else f"the disk of {path}"
