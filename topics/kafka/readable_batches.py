"""Reads record batches defensively: a batch that cannot be parsed is returned as one record.

Its value is the whole batch, which consumers dead-letter.
"""

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

# Byte offsets in a record batch of format 2 (Kafka protocol guide, "Record Batch").
_CODEC_AT: Final = 22
_CODEC: Final = 0x07
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_OFFSET_BYTES: Final = 8
_COUNT_AT: Final = 57
_HEADER: Final = 61
_UNREADABLE: Final = (
    CorruptRecordException,
    ValueError,  # `TooLarge`, header names that are not UTF-8, invalid numbers
    IndexError,
    OverflowError,  # aiokafka raises this and the next for sizes near 2^63
    MemoryError,
)


class UnreadableBatch(NamedTuple):
    """A record in place of those of an unreadable batch; its value is the whole batch."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    checksum: int | None = None


IN_TRANSACTION: Final = -1
"""Marks a record of a transaction, in the field of its checksum, which format 2 does not have.

aiokafka's `ConsumerRecord` passes the checksum on, and has no field for transactions.
"""


_NO_MARKER: Final = UnreadableBatch(0, 0, 0, b"\0\0\0\1", b"")
"""A commit marker, which has no effect on a consumer."""
_MOST_SUSPECTS: Final = 1_000
_suspects: set[bytes] = set()
"""Digests of batches that had the wrong checksum once."""


class ReadableBatch:
    """Wraps an aiokafka batch; yields its validated records, or one `UnreadableBatch`.

    aiokafka decompresses without a limit, cannot read header names that are not UTF-8, and trusts
    the offset in each record. Brokers accept such batches, and a consumer would stop there for ever
    or continue at a wrong offset. Brokers may not verify checksums either: see `suspect`.
    """

    def __init__(self, batch: Any, data: bytes, begin: int, end: int) -> None:
        self._batch, self._where = batch, (data, begin, end)
        self._intact = bool(batch.validate_crc())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def validate_crc(self) -> bool:
        """Return True: a batch with a wrong checksum is read as one record."""
        return True

    @property
    def damaged(self) -> bool:
        """Whether its checksum is wrong, so that nothing in its header is reliable."""
        return not self._intact

    @property
    def suspect(self) -> bool:
        """Whether its checksum is wrong for the first time, so that it should be fetched again.

        Damage in transit is gone the next time; the same bytes again are stored by the broker.
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
        """The offset after it, always beyond its first offset, else it would be read for ever.

        For a batch with a wrong checksum it is the first offset of the following batch, because its
        own end may be damaged.
        """
        first, following = int(self._batch.base_offset), int(self._batch.next_offset)
        if not self._intact:
            data, _, end = self._where
            offset = data[end : end + _OFFSET_BYTES]
            if len(offset) == _OFFSET_BYTES:
                following = int.from_bytes(offset, "big", signed=True)
        return max(following, first + 1)

    @property
    def is_control_batch(self) -> bool:
        """Whether it holds a transaction marker."""
        return self._intact and bool(self._batch.is_control_batch)

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return self._intact and bool(self._batch.is_transactional)

    def __next__(self) -> Any:
        """Return the marker in a control batch, or one without effect if it cannot be parsed."""
        try:
            record = next(self._batch)
            ControlRecord.parse(record.key)
        except Exception:  # written by a producer; those of brokers can always be parsed
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
    """Return a copy of a record, marked as part of a transaction."""
    at, kind = record.timestamp, record.timestamp_type
    key, value, headers = record.key, record.value, record.headers
    return UnreadableBatch(record.offset, at, kind, key, value, headers, IN_TRANSACTION)


def _reason(error: Exception) -> str:
    if isinstance(error, TooLarge):
        return str(error)
    return f"the record batch cannot be read: {str(error) or type(error).__name__}"


def _read(batch: Any, data: bytes, begin: int, end: int) -> list[Any]:
    """Return the records of a batch. Raises the errors in `_UNREADABLE`."""
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
    """Return `records`. Raises `ValueError` if offsets or timestamps are out of range."""
    before, last = batch.base_offset - 1, batch.next_offset - 1
    for record in records:
        offset = record.offset
        if not before < offset <= last or abs(record.timestamp) > LARGEST_MS:
            raise ValueError(f"a record has the impossible offset {offset} or timestamp")
        before = offset
    return records


def _headers_in(records: bytes, count: int) -> int:
    """Return the number of headers of `count` records. Raises `IndexError` and `ValueError`."""
    at = found = 0
    for _record in range(count):
        at, headers, _ = _outline(records, at)
        found += headers
    return found


def _plain(head: bytes) -> bytes:
    """Return a batch header with the codec set to none."""
    return b"%s%c%s" % (head[:_CODEC_AT], head[_CODEC_AT] & ~_CODEC, head[_CODEC_AT + 1 :])


def header_name(name: bytes) -> str:
    """Return a header's name; if it is not UTF-8, non-ASCII bytes become `?`."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("ascii", "replace").replace("\ufffd", "?")


def _named(head: bytes, records: bytearray, count: int) -> Any:
    """Return a batch with readable header names. Raises `IndexError` and `ValueError`."""
    at = 0
    for _record in range(count):
        at = _name_headers(records, at)
    return DefaultRecordBatch(head + bytes(records))


def _name_headers(records: bytearray, at: int) -> int:
    """Replace invalid header names of one record in place; return where it ends."""
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
    """Return the end of the record at `at`, its number of headers, and where they begin."""
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
