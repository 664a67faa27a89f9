"""The pieces of an export: zstd frames, each behind a skippable frame that describes it.

The content of a piece is not interpreted here (`export_file`). Damage is found by checksums, of the
head alone and of head and frame, and is an error: nothing of a damaged file is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from io import BufferedReader
from typing import Final
from zlib import crc32

import cramjam
import msgspec

SKIPPABLE: Final = 0x184D2A50
"""A zstd frame that decoders pass over (RFC 8878, section 3.1.2)."""
_HEAD: Final = struct.Struct("<II")
_MOST_HEAD: Final = 1_000
_LEVEL: Final = 3


class NotAPiece(ValueError):
    """The beginning of a file is not a piece."""


class DamagedHead(ValueError):
    """Behind the first piece something stands that is not a head; the message names the byte."""


class Head(msgspec.Struct, omit_defaults=True):
    """The header before a zstd frame. `partition`: -1 for the first and last line.

    `crc`: CRC-32 of the header and the frame; `own`: of the header alone, for readers that skip
    the frame. -1 in older exports, which have none.
    """

    bytes: int
    partition: int = -1
    records: int = 0
    crc: int = -1
    own: int = -1


def encode_piece(lines: Sequence[bytes], partition: int, records: int) -> bytes:
    """Return lines as a piece."""
    packed = bytes(cramjam.zstd.compress(b"".join(lines), _LEVEL))
    head = Head(len(packed), partition, records)
    head.crc = _checksum(head, packed)
    head.own = _own_checksum(head)
    encoded = msgspec.json.encode(head)
    return _HEAD.pack(SKIPPABLE, len(encoded)) + encoded + packed


def _checksum(head: Head, packed: bytes) -> int:
    return crc32(packed, crc32(b"%d %d" % (head.partition, head.records)))


def _own_checksum(head: Head) -> int:
    return crc32(b"%d %d %d %d" % (head.bytes, head.partition, head.records, head.crc))


def heads(read: BufferedReader) -> Iterator[Head]:
    """Yield every head, the file then being at its frame.

    Raises `NotAPiece`, `DamagedHead` and `OSError`.
    """
    at, end = 0, read.seek(0, 2)
    while at < end:
        read.seek(at)
        head = _head(read)
        if head is None:
            if at == 0:
                raise NotAPiece
            raise DamagedHead(f"byte {at}: damaged, no record from here on can be read")
        body = read.tell()
        yield head
        at = body + head.bytes


def body(read: BufferedReader, head: Head) -> bytes:
    """Return what a frame holds. Raises `ValueError` where it is damaged."""
    packed = read.read(head.bytes)
    if len(packed) < head.bytes:
        raise ValueError("its end is missing")
    if head.crc not in (-1, _checksum(head, packed)):
        raise ValueError("its checksum does not match")
    try:
        return bytes(cramjam.zstd.decompress(packed))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error


def _head(read: BufferedReader) -> Head | None:
    """Return the head that stands here; None where none does."""
    try:
        magic, size = _HEAD.unpack(read.read(_HEAD.size))
        if magic != SKIPPABLE or size > _MOST_HEAD:
            return None
        found = msgspec.json.decode(read.read(size), type=Head)
    except (struct.error, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.bytes >= 0 and found.own in (-1, _own_checksum(found)) else None
