"""Binary format of a spool segment: a header, then one record per event. No files, no clock.

The header is (magic, position of the first record, creation in Unix ms). A record is a fixed head
(mark, length of the key, length of the event, CRC-32, position), the key and the event. A record
without key and event seals the segment: nothing follows.
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
"""Longest key: two identifiers of four-byte characters, and the separator."""

_HEADER = struct.Struct("<8sQQ")
_HEAD = struct.Struct("<2sHIIQ")
HEADER_BYTES: Final = _HEADER.size
MAX_RECORD_BYTES: Final = _HEAD.size + MAX_KEY_BYTES + MAX_EVENT_BYTES


class SpoolRecord(NamedTuple):
    """One appended event."""

    position: int
    key: bytes
    event: bytes


class SegmentTail(Enum):
    """What follows the last whole record of a scan."""

    END = "end"
    SHORT = "short"
    BAD = "bad"
    SEALED = "sealed"


class SegmentScan(NamedTuple):
    """Whole records, the offset after the last of them, and what follows."""

    records: list[SpoolRecord]
    end: int
    tail: SegmentTail


def pack_header(first: int, created_ms: int) -> bytes:
    """Return the header of a segment whose first record has position `first`."""
    return _HEADER.pack(MAGIC, first, created_ms)


def unpack_header(data: bytes) -> tuple[int, int] | None:
    """Return (first position, creation in Unix ms); None if this is not a segment."""
    if len(data) < HEADER_BYTES:
        return None
    magic, first, created_ms = _HEADER.unpack_from(data)
    return (first, created_ms) if magic == MAGIC else None


def pack_record(position: int, key: bytes, event: bytes) -> bytes:
    """Return the bytes of one record."""
    checksum = _checksum(position, key, event)
    return _HEAD.pack(MARK, len(key), len(event), checksum, position) + key + event


def _checksum(position: int, key: bytes, event: bytes) -> int:
    # The seed binds the checksum to the position: a record at another position does not pass.
    return crc32(event, crc32(key, (position ^ position >> 32) & 0xFFFFFFFF))


def pack_seal(position: int) -> bytes:
    """Return the record that seals a segment; `position`: of the next event."""
    return pack_record(position, b"", b"")


def scan(data: bytes, expected: int) -> SegmentScan:
    """Read whole records from the start of `data`, with positions of at least `expected`."""
    records: list[SpoolRecord] = []
    at, size = 0, len(data)
    while True:
        if size - at < _HEAD.size:
            return SegmentScan(records, at, SegmentTail.SHORT if at < size else SegmentTail.END)
        mark, key_bytes, event_bytes, checksum, position = _HEAD.unpack_from(data, at)
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
        if _checksum(position, key, event) != checksum:
            return SegmentScan(records, at, SegmentTail.BAD)
        if not event:
            return SegmentScan(records, end, SegmentTail.SEALED)
        records.append(SpoolRecord(position, key, event))
        expected, at = position + 1, end


def find_record(data: bytes, expected: int) -> int | None:
    """Return the offset of the next whole record, of at least `expected`; None if there is none."""
    at = data.find(MARK, 1)
    while at >= 0:
        found = scan(data[at : at + MAX_RECORD_BYTES], expected)
        if found.records or found.tail is SegmentTail.SEALED:
            return at
        at = data.find(MARK, at + 1)
    return None
