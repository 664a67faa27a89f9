"""Spools on a real disk, and the shipper's own reader: what the tests of both share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headstart.shipping.chunks import Item
from headstart.shipping.shipper import MAX_AGE_S
from headstart.spool.layout import SpoolTarget
from headstart.spool.reader import SpoolReader
from headstart.spool.settings import SpoolSettings
from headstart.spool.writer import SpoolWriter

TARGET = SpoolTarget("127.0.0.1:1", "headstart.events", 0.0)
HOUR_MS = 3_600_000


class Clock:
    """Milliseconds that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


def open_spool(directory: Path, name: str = "s", **more: Any) -> SpoolWriter:
    clock = more.pop("now_ms", Clock())
    return SpoolWriter(name, SpoolSettings(directory, **more), TARGET, now_ms=clock)


def open_backlog(spool: SpoolWriter, now_ms: Callable[[], int] | None = None) -> SpoolReader:
    return SpoolReader(spool.folder, MAX_AGE_S, now_ms or spool.now_ms)


def read_all(backlog: SpoolReader) -> list[Item]:
    """Read until nothing more comes, as the shipper does, looking after the process in between."""
    items: list[Item] = []
    for _ in range(3):
        while found := backlog.read():
            items += found
        backlog.check_writer()
    while found := backlog.read():
        items += found
    return items


def event(number: int) -> bytes:
    return b'{"n":%d}' % number


def numbers(items: list[Item]) -> list[bytes]:
    return [item.event for item in items]


def fill(spool: SpoolWriter, count: int, key: bytes = b"k") -> list[bytes]:
    events = [event(spool.next + n) for n in range(count)]
    for each in events:
        assert spool.append(key, each)
    return events


def crash(spool: SpoolWriter) -> None:
    """What kill -9 leaves: the descriptors are gone, nothing was sealed."""
    spool.abandon()
