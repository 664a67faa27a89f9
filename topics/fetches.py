"""Fetches that keep what they are read from, and can be read whatever a stranger wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import aiokafka.consumer.fetcher
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint_py as decode_varint  # it keeps to the bounds

# Places in a record batch of format 2 (Kafka protocol guide, "Record Batch").
_LENGTH_AT: Final = 8
_BEFORE_LENGTH: Final = 12
_CODEC_AT: Final = 22
_CODEC: Final = 0x07
_HEADER: Final = 61
CODECS: Final = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
"""Decompress the records of a batch, by Kafka's number in its attributes."""


class ReadableRecords(MemoryRecords):  # type: ignore[misc]
    """The records of a fetch; their batches can be read where aiokafka's own cannot."""

    def __init__(self, data: bytes) -> None:
        """`data`: record batches, the last perhaps cut off."""
        super().__init__(data)
        self.data, self._next = data, 0

    def next_batch(self) -> Any:
        """Return the next batch, None at the end."""
        batch = super().next_batch()
        if batch is None:
            return None
        begin = self._next
        length = int.from_bytes(self.data[begin + _LENGTH_AT : begin + _BEFORE_LENGTH], "big")
        self._next = begin + _BEFORE_LENGTH + length
        return _Batch(batch, self.data, begin, self._next)


class KeptRecords(ReadableRecords):
    """The same, with how far they have been read by compiled code."""

    cursor = 0

    def rest(self) -> ReadableRecords:
        """Return what has not been read, for aiokafka to read."""
        return ReadableRecords(self.data[self.cursor :])


class _Batch:
    """A batch of aiokafka's, which cannot read records whose headers have names that are no text.

    No broker refuses those, and each fetch would end at them.
    """

    def __init__(self, batch: Any, data: bytes, begin: int, end: int) -> None:
        self._batch, self._where = batch, (data, begin, end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        try:
            return iter([*self._batch])
        except UnicodeDecodeError:
            data, begin, end = self._where
            return iter(_with_names(data[begin:end]))


def header_name(name: bytes) -> str:
    """Return the name of a header; of one that is no UTF-8 what is not ASCII is `?`."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("ascii", "replace").replace("\ufffd", "?")


def _with_names(raw: bytes) -> Any:
    """Return a batch, decompressed, with names of headers that are text."""
    head, section = bytearray(raw[:_HEADER]), raw[_HEADER:]
    if (codec := CODECS.get(head[_CODEC_AT] & _CODEC)) is not None:
        section = codec(section)
        head[_CODEC_AT] &= ~_CODEC
    records, at = bytearray(section), 0
    try:
        while at < len(records):
            at = _name_headers(records, at)
    except (IndexError, ValueError) as error:
        raise CorruptRecordException("a record that is cut off") from error
    return DefaultRecordBatch(bytes(head + records))


def _name_headers(records: bytearray, at: int) -> int:
    """Make the names of one record's headers text; return where it ends."""
    length, at = decode_varint(records, at)
    end = at + length
    if length < 0 or end > len(records):
        raise IndexError("the record's own length")
    for _number in range(2):  # time and offset, behind the attributes
        _, at = decode_varint(records, at + (_number == 0))
    for _part in range(2):  # key and value
        size, at = decode_varint(records, at)
        at += max(size, 0)
    count, at = decode_varint(records, at)
    for _header in range(count):
        size, at = decode_varint(records, at)
        if size < 0 or at + size > end:
            raise IndexError("a header's length")
        records[at : at + size] = header_name(bytes(records[at : at + size])).encode()
        size, at = decode_varint(records, at + size)
        at += max(size, 0)
    return end


def install() -> None:
    """Have fetches of every consumer of aiokafka that is made from now on kept."""
    aiokafka.consumer.fetcher.MemoryRecords = KeptRecords
