"""The bytes of a spool segment: a header, then one record per event. Pure: no files, no clock.

A segment begins with (magic, position of its first record, creation in Unix ms). A record is a
fixed head (mark, length of the key, length of the event, CRC-32, position), the key, the event.
A record without key and event seals the segment: nothing follows in it.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final, NamedTuple
from zlib import crc32

from headstart.events.schema import MAX_EVENT_BYTES, MAX_IDENTIFIER

MAGIC: Final = b"HSSPOOL1"
MARK: Final = b"\xe7\x1d"
MAX_KEY_BYTES: Final = 2 * 4 * MAX_IDENTIFIER + 1
"""Longest key: two identifiers of four-byte characters and their separator."""

_HEADER = struct.Struct("<8sQQ")
_HEAD = struct.Struct("<2sHIIQ")
HEADER_BYTES: Final = _HEADER.size
MAX_RECORD_BYTES: Final = _HEAD.size + MAX_KEY_BYTES + MAX_EVENT_BYTES


class SpoolRecord(NamedTuple):
    """One event as it was appended."""

    position: int
    key: bytes
    event: bytes


class SegmentTail(Enum):
    """What a scan found behind the last whole record."""

    END = "end"
    SHORT = "short"
    BAD = "bad"
    SEALED = "sealed"


class SegmentScan(NamedTuple):
    """Whole records, the offset behind the last of them, and what follows there."""

    records: list[SpoolRecord]
    end: int
    tail: SegmentTail


def pack_header(first: int, created_ms: int) -> bytes:
    """Return the header of a segment whose first record has position `first`."""
    return _HEADER.pack(MAGIC, first, created_ms)


def unpack_header(data: bytes) -> tuple[int, int] | None:
    """Return (first position, creation in Unix ms); None where this is no segment of ours."""
    if len(data) < HEADER_BYTES:
        return None
    magic, first, created_ms = _HEADER.unpack_from(data)
    return (first, created_ms) if magic == MAGIC else None


def pack_record(position: int, key: bytes, event: bytes) -> bytes:
    """Return the bytes of one record."""
    check = _check(position, key, event)
    return _HEAD.pack(MARK, len(key), len(event), check, position) + key + event


def _check(position: int, key: bytes, event: bytes) -> int:
    # The seed binds the checksum to the position: a record in another's place does not pass.
    return crc32(event, crc32(key, (position ^ position >> 32) & 0xFFFFFFFF))


def pack_seal(position: int) -> bytes:
    """Return the record that ends a segment; `position` is the next event's."""
    return pack_record(position, b"", b"")


def scan(data: bytes, expected: int) -> SegmentScan:
    """Read whole records from the start of `data`; positions begin at `expected` or above."""
    records: list[SpoolRecord] = []
    at, size = 0, len(data)
    while True:
        if size - at < _HEAD.size:
            return SegmentScan(records, at, SegmentTail.SHORT if at < size else SegmentTail.END)
        mark, key_bytes, event_bytes, check, position = _HEAD.unpack_from(data, at)
        if (
            mark != MARK
            or key_bytes > MAX_KEY_BYTES
            or event_bytes > MAX_EVENT_BYTES
            or position < expected
        ):
            return SegmentScan(records, at, SegmentTail.BAD)
        middle = at + _HEAD.size + key_bytes
        end = middle + event_bytes
        if end > size:
            return SegmentScan(records, at, SegmentTail.SHORT)
        key, event = data[at + _HEAD.size : middle], data[middle:end]
        if _check(position, key, event) != check:
            return SegmentScan(records, at, SegmentTail.BAD)
        if not event:
            return SegmentScan(records, end, SegmentTail.SEALED)
        records.append(SpoolRecord(position, key, event))
        expected, at = position + 1, end


def find_record(data: bytes, expected: int) -> int | None:
    """Return the offset of the next whole record at or above `expected`; None where none is."""
    at = data.find(MARK, 1)
    while at >= 0:
        found = scan(data[at : at + MAX_RECORD_BYTES], expected)
        if found.records or found.tail is SegmentTail.SEALED:
            return at
        at = data.find(MARK, at + 1)
    return None
