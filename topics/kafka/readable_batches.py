"""Record batches read whatever a stranger wrote: their records, or else one, the whole batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from aiokafka.errors import CorruptRecordException, KafkaError
from aiokafka.record.control_record import ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.util import decode_varint_py as decode_varint  # it keeps to the bounds

from topics.kafka.decompression import TooLarge, decompressed
from topics.kafka.limits import LARGEST_MS, MOST_HEADERS, MOST_RECORDS, WholeBytes
from topics.kafka.old_formats import NO_TIMESTAMP, read_old

_LOG: Final = logging.getLogger("headstart.batches")

# Places in a record batch of format 2 (Kafka protocol guide, "Record Batch").
_CODEC_AT: Final = 22
_CODEC: Final = 0x07
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_OFFSET_BYTES: Final = 8
_COUNT_AT: Final = 57
_HEADER: Final = 61
_UNREADABLE: Final = (
    CorruptRecordException,
    ValueError,  # `TooLarge`, names that are no text, and a number that is none
    IndexError,
    OverflowError,  # this and the next aiokafka raises over sizes near 2^63
    MemoryError,
)


class UnreadableBatch(NamedTuple):
    """What stands for the records of a batch that cannot be read: all of it, as it is."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    checksum: int | None = None


IN_TRANSACTION: Final = -1
"""In the place of a record's checksum, which format 2 has not: the record is of a transaction.

aiokafka's `ConsumerRecord` hands it on, and has no field that says this.
"""


_NO_MARKER: Final = UnreadableBatch(0, 0, 0, b"\0\0\0\1", b"")
"""A commit: for a reader it changes nothing."""
_MOST_SUSPECTS: Final = 1_000
_suspects: set[bytes] = set()
"""Digests of batches that had the wrong checksum when they were fetched last."""


class ReadableBatch:
    """A batch of aiokafka's, whose records are as they should be, or else one: the whole batch.

    aiokafka unpacks whatever it may become, cannot read headers whose names are no text, and
    believes each record its offset. No broker refuses those, and each fetch would end at them, or
    go on where there is nothing. A broker need not compare checksums either: see `suspect`.
    """

    def __init__(self, batch: Any, data: bytes, begin: int, end: int) -> None:
        self._batch, self._where = batch, (data, begin, end)
        self._intact = bool(batch.validate_crc())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def validate_crc(self) -> bool:
        """Return True: what has the wrong checksum is read as one record, the whole batch."""
        return True

    @property
    def damaged(self) -> bool:
        """Whether it has the wrong checksum: nothing in its head can be relied on."""
        return not self._intact

    @property
    def suspect(self) -> bool:
        """Whether it has the wrong checksum for the first time, so that it is to be fetched again.

        What was damaged on its way is whole the next time; the same bytes again are what the
        broker holds.
        """
        if self._intact:
            return False
        data, begin, end = self._where
        digest = sha256(data[begin:end]).digest()
        if digest in _suspects:
            return False
        if len(_suspects) >= _MOST_SUSPECTS:
            _suspects.clear()
        _suspects.add(digest)
        _LOG.warning("a record batch at offset %d has the wrong checksum", self._batch.base_offset)
        return True

    @property
    def next_offset(self) -> int:
        """The offset after it. One that is not after its first would be read again for ever.

        Of a batch whose checksum is wrong, the first offset of the batch behind it: where it says
        that it ends may be what is damaged.
        """
        first, told = int(self._batch.base_offset), int(self._batch.next_offset)
        if not self._intact:
            data, _, end = self._where
            behind = data[end : end + _OFFSET_BYTES]
            if len(behind) == _OFFSET_BYTES:
                told = int.from_bytes(behind, "big", signed=True)
        return max(told, first + 1)

    @property
    def is_control_batch(self) -> bool:
        """Whether it is a marker of the broker's."""
        return self._intact and bool(self._batch.is_control_batch)

    @property
    def is_transactional(self) -> bool:
        """Whether it is of a transaction."""
        return self._intact and bool(self._batch.is_transactional)

    def __next__(self) -> Any:
        """Return the marker in a control batch, one that ends nothing where it cannot be read."""
        try:
            record = next(self._batch)
            ControlRecord.parse(record.key)
        except Exception:  # a producer's, of any form; brokers write none that cannot be read
            return _NO_MARKER
        return record

    def __iter__(self) -> Iterator[Any]:
        data, begin, end = self._where
        if not self._intact:
            old, last = data[begin + _MAGIC_AT] != _MAGIC, self.next_offset - 1
            at = last if old else self._batch.base_offset
            value = self._whole("the record batch cannot be read: its checksum", 0 if old else at)
            return iter([UnreadableBatch(at, NO_TIMESTAMP, 0, None, value)])
        if data[begin + _MAGIC_AT] != _MAGIC:
            return iter(self._old())
        try:
            records = _checked(_read(self._batch, data, begin, end), self._batch)
            return iter(map(_in_transaction, records) if self.is_transactional else records)
        except _UNREADABLE as error:
            first, kind = self._batch.base_offset, self._batch.timestamp_type
            at = max(-LARGEST_MS, min(self._batch.max_timestamp, LARGEST_MS))
            value = self._whole(_reason(error), first)
            return iter([UnreadableBatch(first, at, kind, None, value)])

    def _old(self) -> list[Any]:
        """Return the records of a message of format 0 or 1."""
        try:
            return read_old(self._batch, *self._where)
        except (*_UNREADABLE, KafkaError, RuntimeError, AssertionError) as error:  # of aiokafka
            last = self._batch.next_offset - 1
            return [UnreadableBatch(last, NO_TIMESTAMP, 0, None, self._whole(_reason(error), 0))]

    def _whole(self, reason: str, first: int) -> WholeBytes:
        data, begin, end = self._where
        return WholeBytes(data[begin:end], reason, first, self.next_offset)


def _in_transaction(record: Any) -> UnreadableBatch:
    """Return a record as it is, marked as one of a transaction."""
    at, kind = record.timestamp, record.timestamp_type
    key, value, headers = record.key, record.value, record.headers
    return UnreadableBatch(record.offset, at, kind, key, value, headers, IN_TRANSACTION)


def _reason(error: Exception) -> str:
    if isinstance(error, TooLarge):
        return str(error)
    return f"the record batch cannot be read: {str(error) or type(error).__name__}"


def _read(batch: Any, data: bytes, begin: int, end: int) -> list[Any]:
    """Return the records of a batch. Raises what is `_UNREADABLE`."""
    head, codec = data[begin : begin + _HEADER], data[begin + _CODEC_AT] & _CODEC
    count = int.from_bytes(head[_COUNT_AT:], "big")
    if count > MOST_RECORDS:
        raise TooLarge(f"the batch has more than {MOST_RECORDS:,} records")
    if codec:
        head, data = _plain(head), decompressed(codec, data[begin + _HEADER : end])
        if len(data) > 2 * MOST_HEADERS and _headers_in(data, count) > MOST_HEADERS:
            raise TooLarge(f"the batch has more than {MOST_HEADERS:,} headers")
        batch, begin, end = DefaultRecordBatch(head + data), 0, len(data)
    else:
        begin += _HEADER
    try:
        return [*batch]
    except UnicodeDecodeError:
        return [*_named(head, bytearray(data[begin:end]), count)]


def _checked(records: list[Any], batch: Any) -> list[Any]:
    """Return records in the order of their offsets. Raises `ValueError`."""
    before, last = batch.base_offset - 1, batch.next_offset - 1
    for record in records:
        offset = record.offset
        if not before < offset <= last or abs(record.timestamp) > LARGEST_MS:
            raise ValueError(f"a record that says it is at {offset}")
        before = offset
    return records


def _headers_in(records: bytes, count: int) -> int:
    """Return how many headers so many records have. Raises `IndexError` and `ValueError`."""
    at = found = 0
    for _record in range(count):
        at, headers, _ = _outline(records, at)
        found += headers
    return found


def _plain(head: bytes) -> bytes:
    """Return the head of a batch whose records are not compressed any more."""
    return b"%s%c%s" % (head[:_CODEC_AT], head[_CODEC_AT] & ~_CODEC, head[_CODEC_AT + 1 :])


def header_name(name: bytes) -> str:
    """Return the name of a header; of one that is no UTF-8 what is not ASCII is `?`."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("ascii", "replace").replace("\ufffd", "?")


def _named(head: bytes, records: bytearray, count: int) -> Any:
    """Return a batch with names of headers that are text. Raises `IndexError` and `ValueError`."""
    at = 0
    for _record in range(count):
        at = _name_headers(records, at)
    return DefaultRecordBatch(head + bytes(records))


def _name_headers(records: bytearray, at: int) -> int:
    """Make the names of one record's headers text; return where it ends."""
    end, count, at = _outline(records, at)
    for _header in range(count):
        size, at = decode_varint(records, at)
        if size < 0 or at + size > end:
            raise IndexError("a header's length")
        records[at : at + size] = header_name(bytes(records[at : at + size])).encode()
        size, at = decode_varint(records, at + size)
        at += max(size, 0)
    return end


def _outline(records: bytes | bytearray, at: int) -> tuple[int, int, int]:
    """Return where the record at `at` ends, how many headers it has, and where they begin."""
    length, at = decode_varint(records, at)
    end = at + length
    if length < 0 or end > len(records):
        raise IndexError("the record's own length")
    if records[at] >= 0x80:  # aiokafka takes it for a number of several bytes
        raise ValueError("attributes")
    _time, at = decode_varint(records, at + 1)
    _offset, at = decode_varint(records, at)
    for _part in range(2):  # key and value
        size, at = decode_varint(records, at)
        at += max(size, 0)
    headers, at = decode_varint(records, at)
    if headers < 0:
        raise IndexError("the number of headers")
    return end, headers, at
