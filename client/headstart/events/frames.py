"""Frames: one Kafka record carries the events of one key, as a JSON array of objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

MAX_FRAME_BYTES: Final = 900_000
"""Largest frame, in bytes: below the 1 MB that brokers accept by default."""
MAX_FRAME_EVENTS: Final = 1_000
"""Most events in one frame, so that the rows changed by one record fit one commit."""


def encode_frame(events: Iterable[bytes]) -> bytes:
    """Return the record value for `events`, each the JSON of one event."""
    return b"[" + b",".join(events) + b"]"


def cut_frames(events: Iterable[bytes], max_events: int = 200) -> Iterator[list[bytes]]:
    """Cut the events of one key into frames within the limits, keeping their order."""
    frame: list[bytes] = []
    size = 2
    for event in events:
        if frame and (len(frame) >= max_events or size + len(event) + 1 > MAX_FRAME_BYTES):
            yield frame
            frame, size = [], 2
        frame.append(event)
        size += len(event) + 1
    if frame:
        yield frame
