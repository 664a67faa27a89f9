"""Dead letters: what an agent refused, with its origin and the reason.

Headers follow Kafka Connect's dialect, so that its tools read them.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from headstart.frames import MAX_FRAME_BYTES
from processing.decode import Refusal
from processing.records import RecordBatch

MAX_KEY_BYTES = 4_096
"""A longer key is cut, so that a dead letter always fits a record."""


class DeadLetter(NamedTuple):
    """One refused event or record: its original bytes, and where it came from."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]


def dead_letter(batch: RecordBatch, position: int, refusal: Refusal, group: str) -> DeadLetter:
    """Return the dead letter for what `group` refused of the record at `position` of `batch`."""
    value = refusal.raw
    headers = {
        "__connect.errors.topic": batch.topic,
        "__connect.errors.partition": batch.partition,
        "__connect.errors.offset": batch.offsets[position],
        "__connect.errors.exception.message": refusal.reason[:1000],
        "headstart.group": group,
        "headstart.timestamp": batch.timestamps[position],
    }
    if refusal.place is not None:
        headers["headstart.frame.place"] = refusal.place
    if len(value) > MAX_FRAME_BYTES:
        headers["headstart.truncated.from"] = len(value)
        headers["headstart.truncated.sha256"] = hashlib.sha256(value).hexdigest()
        value = value[:MAX_FRAME_BYTES]
    key = batch.keys[position]
    encoded = [(name, str(text).encode()) for name, text in headers.items()]
    return DeadLetter(key and key[:MAX_KEY_BYTES], value, encoded)
