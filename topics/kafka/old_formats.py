"""Reads Kafka's message formats 0 and 1, from before record batches (Kafka 0.11).

Since Kafka 4.0 brokers reject them from producers, but segments written before an upgrade contain
them and are served unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from topics.kafka.decompression import decompressed
from topics.kafka.limits import LARGEST_MS, MOST_RECORDS

NO_TIMESTAMP: Final = -1
"""Kafka's timestamp of a record that has none, as in format 0."""

# Byte offsets in a message (Kafka documentation, "Old Message Format"), from its offset field.
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 17
_CODEC: Final = 0x07
_KEY_AT: Final = {0: 18, 1: 26}


class OldRecord(NamedTuple):
    """A record of format 0 with a timestamp: aiokafka's is None, which no consumer expects."""

    offset: int
    timestamp: int
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    checksum: None = None


def read_old(batch: Any, data: bytes, begin: int, end: int) -> list[Any]:
    """Return the records of aiokafka's legacy `batch`, which is `data[begin:end]`.

    Raises `TooLarge`, `ValueError`, and aiokafka's errors if they cannot be read.
    """
    magic, codec = data[begin + _MAGIC_AT], data[begin + _ATTRIBUTES_AT] & _CODEC
    if codec:
        decompressed(codec, _value(data, begin + _KEY_AT[magic], end))  # checks the size
    records = [
        OldRecord(each.offset, NO_TIMESTAMP, None, each.key, each.value)
        if each.timestamp is None
        else each
        for each in batch
    ]
    before, last = -1, batch.next_offset - 1
    for record in records:
        if not before < record.offset <= last or abs(record.timestamp) > LARGEST_MS:
            raise ValueError(f"a record has the impossible offset {record.offset} or timestamp")
        before = record.offset
    if not 0 < len(records) <= MOST_RECORDS:
        raise ValueError(f"{len(records)} records in one message")
    return records


def _value(data: bytes, at: int, end: int) -> bytes:
    """Return the value of a message whose key begins at `at`. Raises `ValueError`."""
    key = int.from_bytes(data[at : at + 4], "big", signed=True)
    at += 4 + max(key, 0)
    size = int.from_bytes(data[at : at + 4], "big", signed=True)
    if size < 0 or at + 4 + size > end:
        raise ValueError("a compressed message without records")
    return data[at + 4 : at + 4 + size]
