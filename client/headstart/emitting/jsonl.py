"""Emits events from JSONL, one per line; invalid lines are reported and skipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import orjson

from headstart.emitting.emitter import BufferFull, Emitter, NotDelivered
from headstart.emitting.line_input import open_lines
from headstart.events.exact_json import load_exactly
from headstart.events.schema import InvalidEvent

_PROGRESS_EVERY_S = 2.0


@dataclass
class EmitReport:
    """Counts of the lines of one file."""

    emitted: int = 0
    refused: int = 0


def emit_lines(
    file: str,
    kafka: str,
    echo: Callable[[str], None],
    timeout_s: float = 30.0,
    check: Callable[[], None] = lambda: None,
    opened: Callable[[str], AbstractContextManager[Iterable[tuple[int, bytes]]]] | None = None,
) -> EmitReport:
    """Emit every line of `file` (`-` is standard input) and wait for the acknowledgements.

    Args:
        file: Path, or `-`.
        kafka: host:port of the broker.
        echo: Called with progress, and with each refused line and its number.
        timeout_s: Seconds that the broker may take for everything.
        check: Called once the file is open, before anything is sent; may raise.
        opened: Opens the file for (line number, line), if it is not JSONL as
            `open_lines` reads it.

    Raises:
        OSError: The file cannot be read, or is cut, damaged or compressed with other than gzip.
        NotDelivered: The broker did not acknowledge everything in time.
    """
    report = EmitReport()
    reported_at = time.monotonic()
    with (opened or open_lines)(file) as lines:
        check()
        # The file is the durable copy: run this again to emit what was not sent.
        emitter = Emitter(kafka, durable=False)
        for number, line in lines:
            if not line.strip():
                continue
            try:
                _emit(emitter, load_exactly(line), timeout_s)
                report.emitted += 1
            except (InvalidEvent, orjson.JSONDecodeError) as error:
                report.refused += 1
                echo(f"{file}:{number}: {error}")
            if time.monotonic() - reported_at > _PROGRESS_EVERY_S:
                reported_at = time.monotonic()
                echo(f"{number} lines read, {emitter.stats()['acknowledged']} events acknowledged")
        emitter.close(timeout_s)
    return report


def _emit(emitter: Emitter, event: object, timeout_s: float) -> None:
    """Emit one event; wait while the buffer is full, as a file is faster than a broker."""
    if not isinstance(event, dict):
        raise InvalidEvent("", "an event is a JSON object")
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            emitter.emit(event)
            return
        except BufferFull as error:
            if time.monotonic() > deadline:
                raise NotDelivered(str(error)) from error
            time.sleep(0.05)
