"""Decompresses record batches up to a size limit: a few kilobytes may expand to gigabytes."""

from __future__ import annotations

import gzip
import io
import mmap
from collections.abc import Callable, Mapping
from typing import Final

import cramjam
from aiokafka.codec import snappy_decode
from aiokafka.errors import CorruptRecordException

from topics.kafka.limits import MOST_BYTES

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_BLOCKS_AT: Final = 16


class TooLarge(ValueError):
    """A batch exceeds a limit of `topics.kafka.limits`."""


def _too_large() -> TooLarge:
    return TooLarge(f"the batch unpacks to more than {MOST_BYTES:,} bytes")


def decompressed(codec: int, section: bytes) -> bytes:
    """Return decompressed records; `codec`: Kafka's number, 1 to 4.

    Raises `TooLarge`, and `CorruptRecordException` if the data is not compressed with `codec`.
    """
    try:
        return _BY_CODEC[codec](section)
    except TooLarge:
        raise
    except Exception as error:  # each library raises its own
        raise CorruptRecordException(f"records that cannot be decompressed: {error}") from error


def _gzip(section: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(section)) as reader:
        found = reader.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise _too_large()
    return found


def _snappy(section: bytes) -> bytes:
    blocks, size = [section], 0
    if section.startswith(_XERIAL):
        blocks, at = [], _XERIAL_BLOCKS_AT
        while at < len(section):
            end = at + 4 + int.from_bytes(section[at : at + 4], "big")
            blocks.append(section[at + 4 : end])
            at = end
    for block in blocks:
        size += cramjam.snappy.decompress_raw_len(block)
        if size > MOST_BYTES:
            raise _too_large()
    return bytes(snappy_decode(section))


def _lz4(section: bytes) -> bytes:
    return _into_room(cramjam.lz4.decompress_into, section)


def _zstd(section: bytes) -> bytes:
    return _into_room(cramjam.zstd.decompress_into, section)


def _into_room(decompress: Callable[[bytes, mmap.mmap], int], section: bytes) -> bytes:
    # Only pages that are written take memory.
    with mmap.mmap(-1, MOST_BYTES) as room:
        try:
            size = decompress(section, room)
        except cramjam.DecompressionError as error:
            if "whole buffer" in str(error):
                raise _too_large() from error
            raise
        return room[:size]


_BY_CODEC: Final[Mapping[int, Callable[[bytes], bytes]]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
