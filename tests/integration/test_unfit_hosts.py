"""A host whose clock is wrong or whose disk is full: named, kept out, and no harm to the others."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hosts import Site
from topics.catalogue import THRESHOLDS_GROUP
from topics.kafka.groups import group_members

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Event = dict[str, Any]
OTHERS = ("thresholds", "episodes", "history", "predictions")
SHIFTED = Path(__file__).parent / "shifted_clock"
TYPES = [f"type-{number}" for number in range(12)]
"""Enough that every partition has some."""
DISK_BYTES = 128 << 20
SPARE_BYTES = 256 << 10


def shifted(hours: int) -> dict[str, str]:
    """Settings of a host whose clock is ahead by so many hours."""
    seconds = str(hours * 3_600)
    return {"PYTHONPATH": str(SHIFTED), "TEST_CLOCK_S": seconds, "HEADSTART_INSTANCE": "1"}


def members(site: Site) -> int:
    return len(asyncio.run(group_members(site.addresses.kafka, THRESHOLDS_GROUP)))


def said(site: Site, host: str, text: str) -> bool:
    """Whether `status` says it, and `doctor` too."""
    return all(text in site.run(command, host=host).stdout for command in ("status", "doctor"))


def test_a_clock_that_is_two_hours_ahead_keeps_its_worker_out(
    site: Site, tenant: str, judged: Callable[..., Event]
) -> None:
    site.of_host["fast"] = shifted(2)
    others = site.start("right", *OTHERS)
    site.until(lambda: others.ready)
    fast = site.start("fast", "thresholds")
    why = "waits for the right time: its clock is 120 minutes ahead of that of Redis"
    site.until(lambda: said(site, "fast", why))
    assert "message.timestamp.after.max.ms" in site.log("fast", "thresholds-1")
    site.emit(judged(tenant, each) for each in TYPES)
    site.until(lambda: site.lag() == 0)
    assert members(site) == 1
    assert (fast.restarts, site.messages) == (0, [])
    (line,) = fast.unready
    assert why in line


def test_a_clock_that_is_two_hours_behind_is_named_and_its_worker_works(
    site: Site, tenant: str, judged: Callable[..., Event]
) -> None:
    site.of_host["slow"] = shifted(-2)
    others = site.start("right", *OTHERS)
    slow = site.start("slow", "thresholds")
    site.until(lambda: others.ready and slow.ready and members(site) == 2)
    site.until(lambda: said(site, "slow", "its clock is 120 minutes behind that of redis"))
    assert "clock.differs" in site.log("slow", "thresholds-1")
    site.emit(judged(tenant, each) for each in TYPES)
    site.until(lambda: site.lag() == 0)
    assert slow.restarts == 0


@pytest.fixture
def small(site: Site) -> Iterator[Path]:
    """The data directory of a host with a small disk."""
    folder = site.folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "small-disk", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root, to mount a small disk")
    try:
        yield folder
    finally:
        site.stop()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Leave a disk no room, for the length of a block."""
    filler = folder / "filler"
    try:
        with filler.open("wb") as file:
            while not filled(folder, file.fileno()):  # the worker has written meanwhile
                file.truncate(0)
        yield
    finally:
        filler.unlink()


def filled(folder: Path, file: int) -> bool:
    """Have a file take the free space of its disk; return whether it was still there."""
    found = os.statvfs(folder)
    size = found.f_bavail * found.f_frsize - SPARE_BYTES
    try:
        if size > 0:
            os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


def test_a_full_disk_keeps_its_worker_out_until_there_is_room(
    site: Site, small: Path, tenant: str, judged: Callable[..., Event]
) -> None:
    site.of_host["small"] = {"HEADSTART_INSTANCE": "1"}
    others = site.start("large", *OTHERS)
    worker = site.start("small", "thresholds")
    site.until(lambda: others.ready and worker.ready and worker.spared and members(site) == 2)

    def fails() -> bool:
        site.emit(judged(tenant, each, user_id=f"u{n}") for each in TYPES for n in range(100))
        site.check()
        return worker.restarts > 0

    with full(small):
        site.until(fails)
        why = "waits for disk space: no space left on small-disk (mounted at "
        site.until(lambda: said(site, "small", why))
        restarts = worker.restarts
        site.emit(judged(tenant, each) for each in TYPES)
        site.until(lambda: site.lag() == 0)
        assert worker.restarts == restarts
        assert members(site) == 1
    site.until(lambda: worker.ready)
    site.until(lambda: members(site) == 2)
