"""The pieces of an export: zstd frames, each behind a skippable frame that says what it is.

What a piece holds is not its business (`exports`). A damaged piece is found by its checksum and
passed over; where a head is damaged, reading goes on at the next one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from typing import Final
from zlib import crc32

import cramjam
import msgspec

SKIPPABLE: Final = 0x184D2A50
"""A zstd frame that decoders pass over (RFC 8878, section 3.1.2)."""
_HEAD: Final = struct.Struct("<II")
_MAGIC: Final = SKIPPABLE.to_bytes(4, "little")
_MOST_HEAD: Final = 1_000
_LEVEL: Final = 3
_LOOKED_AT: Final = 1 << 20

Damaged = Callable[[str], None]
"""Called with a description of each damage: where it is, and what is skipped."""


class NotAPiece(ValueError):
    """The beginning of a file is not a chunk."""


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
    said = msgspec.json.encode(head)
    return _HEAD.pack(SKIPPABLE, len(said)) + said + packed


def _checksum(head: Head, packed: bytes) -> int:
    return crc32(packed, crc32(b"%d %d" % (head.partition, head.records)))


def _own_checksum(head: Head) -> int:
    return crc32(b"%d %d %d %d" % (head.bytes, head.partition, head.records, head.crc))


def heads(read: BufferedReader, damaged: Damaged) -> Iterator[Head]:
    """Yield every head, the file then being at its frame. Raises `NotAPiece`, and `OSError`."""
    at, end = 0, read.seek(0, 2)
    while at < end:
        read.seek(at)
        head = _head(read)
        if head is None:
            if at == 0:
                raise NotAPiece
            found = _next_head(read, at + 1)
            passed = "what follows is" if found is None else f"all up to byte {found} is"
            damaged(f"byte {at}: damaged; {passed} passed over")
            at = end if found is None else found
            continue
        body = read.tell()
        yield head
        at = body + head.bytes


def body(read: BufferedReader, head: Head) -> bytes:
    """Return what a frame holds. Raises `ValueError` where it is damaged."""
    packed = read.read(head.bytes)
    if len(packed) < head.bytes:
        raise ValueError("its end is missing")
    if head.crc not in (-1, _checksum(head, packed)):
        raise ValueError("its checksum is another")
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


def _next_head(read: BufferedReader, begin: int) -> int | None:
    """Return where the next head stands, from a byte on."""
    at, kept = begin, b""
    while True:
        read.seek(at + len(kept))
        more = read.read(_LOOKED_AT)
        looked, place = kept + more, -1
        while (place := looked.find(_MAGIC, place + 1)) >= 0:
            read.seek(at + place)
            if _head(read) is not None:
                return at + place
        if not more:
            return None
        kept = looked[-3:]
        at += len(looked) - len(kept)
