"""Fetches that keep what they are read from, and can be read whatever a stranger wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import aiokafka.consumer.fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint_py as decode_varint  # it keeps to the bounds

from topics.decompression import TooLarge, decompressed

# Places in a record batch of format 2 (Kafka protocol guide, "Record Batch").
_LENGTH_AT: Final = 8
_BEFORE_LENGTH: Final = 12
_CODEC_AT: Final = 22
_CODEC: Final = 0x07
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_HEADER: Final = 61


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


class _Whole(NamedTuple):
    """What stands for the records of a batch that unpacks to too much: all of it, as it is."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    checksum: None = None


class _Batch:
    """A batch of aiokafka's, which cannot read records whose headers have names that are no text,
    and unpacks whatever it may become. No broker refuses those, and each fetch would end at them.
    """

    def __init__(self, batch: Any, data: bytes, begin: int, end: int) -> None:
        self._batch, self._where = batch, (data, begin, end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        data, begin, end = self._where
        batch, codec = self._batch, 0
        if data[begin + _MAGIC_AT] == _MAGIC:
            codec = data[begin + _CODEC_AT] & _CODEC
        if codec:
            try:
                records = decompressed(codec, data[begin + _HEADER : end])
            except TooLarge:
                first, at, kind = batch.base_offset, batch.max_timestamp, batch.timestamp_type
                return iter([_Whole(first, at, kind, None, data[begin:end])])
            data = _plain(data[begin : begin + _HEADER]) + records
            batch, begin, end = DefaultRecordBatch(data), 0, len(data)
        try:
            return iter([*batch])
        except UnicodeDecodeError:
            named = _named(data[begin : begin + _HEADER], bytearray(data[begin + _HEADER : end]))
        try:
            return iter([*named])
        except UnicodeDecodeError as error:
            raise CorruptRecordException("headers that are not where they should be") from error


def _plain(head: bytes) -> bytes:
    """Return the head of a batch whose records are not compressed any more."""
    return b"%s%c%s" % (head[:_CODEC_AT], head[_CODEC_AT] & ~_CODEC, head[_CODEC_AT + 1 :])


def header_name(name: bytes) -> str:
    """Return the name of a header; of one that is no UTF-8 what is not ASCII is `?`."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("ascii", "replace").replace("\ufffd", "?")


def _named(head: bytes, records: bytearray) -> Any:
    """Return a batch with names of headers that are text."""
    at = 0
    try:
        while at < len(records):
            at = _name_headers(records, at)
    except (IndexError, ValueError) as error:
        raise CorruptRecordException("a record that is cut off") from error
    return DefaultRecordBatch(head + bytes(records))


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
    return int(end)


def install() -> None:
    """Have fetches of every consumer of aiokafka that is made from now on kept."""
    aiokafka.consumer.fetcher.MemoryRecords = KeptRecords
