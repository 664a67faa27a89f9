"""Makes dead letters of rejected records and events; topics/dead_letters/messages.py reads them."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from headstart.events.frames import MAX_FRAME_BYTES
from processing.records.batch import RecordBatch
from processing.records.decode import Rejection
from topics.dead_letters.messages import (
    GROUP_HEADER,
    LOST_UNTIL_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    PLACE_HEADER,
    REASON_HEADER,
    SHA256_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
    TRUNCATED_HEADER,
)

MAX_KEY_BYTES = 4_096
"""Longer keys are truncated, so that a dead letter always fits a record."""


class DeadLetter(NamedTuple):
    """One rejected event or record: its original bytes, where it came from, and why."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    partition: int
    offset: int
    reason: str


def letter_of_lost(topic: str, partition: int, lost: range, group: str) -> DeadLetter:
    """Return the dead letter of the offsets `lost`: retention deleted them unread by `group`."""
    reason = (
        f"retention deleted offsets {lost.start} to {lost.stop - 1} before {group} had read them"
    )
    headers = {
        TOPIC_HEADER: topic,
        PARTITION_HEADER: partition,
        OFFSET_HEADER: lost.start,
        LOST_UNTIL_HEADER: lost.stop,
        REASON_HEADER: reason,
        GROUP_HEADER: group,
    }
    encoded = [(name, str(text).encode()) for name, text in headers.items()]
    return DeadLetter(None, b"", encoded, partition, lost.start, reason)


def dead_letter(batch: RecordBatch, position: int, rejection: Rejection, group: str) -> DeadLetter:
    """Return the dead letter of what `group` rejected in the record at `position` of `batch`."""
    value = rejection.raw
    headers = {
        TOPIC_HEADER: batch.topic,
        PARTITION_HEADER: batch.partition,
        OFFSET_HEADER: batch.offsets[position],
        REASON_HEADER: rejection.reason[:1000],
        GROUP_HEADER: group,
        TIMESTAMP_HEADER: batch.timestamps[position],
    }
    if rejection.place is not None:
        headers[PLACE_HEADER] = rejection.place
    if len(value) > MAX_FRAME_BYTES:
        headers[TRUNCATED_HEADER] = len(value)
        headers[SHA256_HEADER] = hashlib.sha256(value).hexdigest()
        value = value[:MAX_FRAME_BYTES]
    key = batch.keys[position]
    encoded = [(name, str(text).encode()) for name, text in headers.items()]
    key = key and key[:MAX_KEY_BYTES]
    return DeadLetter(
        key, value, encoded, batch.partition, batch.offsets[position], rejection.reason
    )
