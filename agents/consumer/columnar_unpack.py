"""Unpacks a fetched partition by compiled code, without an object for each record."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from aiokafka.errors import CorruptRecordException
from aiokafka.record.util import decode_varint

from processing.records.batch import Headers, Packed
from processing.records.columnar import WORD, ColumnarRecordBatch, words_in
from topics.kafka.decompression import TooLarge, decompressed
from topics.kafka.fetch_patch import RetainedRecords
from topics.kafka.readable_batches import header_name

MAX_RECORD: Final = 2_000
"""Bytes of an average record up to which the last of a fetch need not be scanned."""


class _Columns:
    """A fetch, and columns for its records."""

    def __init__(self, records: RetainedRecords, first: int, compiled: Any) -> None:
        """`first`: the first offset to take."""
        self._compiled, self.end = compiled, len(records.data)
        self.data = np.frombuffer(records.data, np.uint8)
        self._buffer = self.data
        rows = compiled.records_in(self.data, records.cursor, self.end)
        self.columns = np.empty((rows, compiled.COLUMNS), np.int64)
        self.state = np.array([records.cursor, 0, 0, first], np.int64)

    def add(self, section: bytes) -> int:
        """Append the decompressed records of a batch to the data; return where they begin."""
        begin, end = len(self.data), len(self.data) + len(section)
        if end > len(self._buffer):
            grown = np.empty(2 * end, np.uint8)
            grown[:begin] = self.data
            self._buffer = grown
        self._buffer[begin:end] = np.frombuffer(section, np.uint8)
        self.data = self._buffer[:end]
        self.data.flags.writeable = False
        return begin

    def batch(self, tp: Any, begin: int, end: int) -> ColumnarRecordBatch:
        """Return the records, fetched from offset `begin` on; `end` is the next to fetch."""
        compiled = self._compiled
        rows = self.columns[: self.state[compiled.RECORDS]]
        columns = rows.T.copy()
        packed = Packed(
            self._padded(len(rows)),
            columns[compiled.OFFSET],
            columns[compiled.TIMESTAMP],
            *columns[compiled.VALUE : compiled.VALUE + 2],
        )
        keys = columns[compiled.KEY], columns[compiled.KEY + 1]
        headers = _headers(rows, self.data, compiled)
        return ColumnarRecordBatch(
            tp.topic, tp.partition, begin, end, packed, keys, headers,
            int(self.state[compiled.BYTES]),
        )  # fmt: skip

    def _padded(self, records: int) -> Any:
        """Return the data with one more word, which the scanner needs behind what it reads.

        Without it where there are so many records that scanning the last is not worth a copy.
        """
        padded, size = self._buffer[: len(self.data) + WORD], len(self.data)
        if len(padded) < size + WORD:
            if size < MAX_RECORD * records:
                return self.data
            padded = np.concatenate((self.data, np.zeros(WORD, np.uint8)))
        padded.flags.writeable = False
        return padded


def unpack(
    source: Any, tp: Any, most_bytes: int, compiled: Any
) -> tuple[ColumnarRecordBatch | None, bool]:
    """Return the records of an aiokafka `PartitionRecords`, and whether more are left.

    None where compiled code cannot read the next batch: aiokafka then reads the rest.
    """
    records: RetainedRecords = source._records
    begin, section, cursor = source.next_fetch_offset, 0, records.cursor
    target = _Columns(records, begin, compiled)
    while True:
        words = words_in(target.data)
        why = compiled.unpack(
            words, target.data, target.end, section, source._check_crcs, begin, most_bytes,
            target.state, target.columns,
        )  # fmt: skip
        records.cursor = int(target.state[compiled.CURSOR])
        source.next_fetch_offset = int(target.state[compiled.NEXT])
        section = 0
        if why == compiled.COMPRESSED and (held := _decompressed(records, compiled)):
            section = target.add(held)
        elif why != compiled.TAKEN:
            break
    left = why != compiled.ALL
    if not target.state[compiled.RECORDS]:
        return None, left
    try:
        return target.batch(tp, begin, source.next_fetch_offset), left
    except CorruptRecordException:  # in headers: reading one by one finds the record
        records.cursor, source.next_fetch_offset = cursor, begin
        return None, True


def _decompressed(records: RetainedRecords, compiled: Any) -> bytes:
    """Return the records of the batch at the cursor, decompressed; empty where that fails."""
    at, data = records.cursor, records.data
    end = at + compiled.BEFORE_LENGTH + int.from_bytes(data[at + 8 : at + 12], "big")
    codec = data[at + compiled.ATTRIBUTES + 1] & compiled.CODEC
    try:
        return decompressed(codec, data[at + compiled.HEADER : end])
    except (CorruptRecordException, TooLarge):  # aiokafka checks the checksum first
        return b""


def _headers(rows: Any, data: Any, compiled: Any) -> dict[int, Headers]:
    """Return the headers of records that have any, by offset."""
    found = {}
    for row in rows[rows[:, compiled.HEADERS] >= 0].tolist():
        span = data[row[compiled.HEADERS] : row[compiled.HEADERS + 1]].tobytes()
        try:
            found[row[compiled.OFFSET]] = _read_headers(span)
        except (IndexError, ValueError) as error:
            raise CorruptRecordException(f"headers at offset {row[compiled.OFFSET]}") from error
    return found


def _read_headers(span: bytes) -> Headers:
    buffer, found = bytearray(span), list[tuple[str, bytes | None]]()
    count, at = decode_varint(buffer, 0)
    for _header in range(count):
        key, at = _text(buffer, at)
        value, at = _text(buffer, at)
        if key is None:
            raise ValueError("a header without a key")
        found.append((header_name(key), value))
    if at != len(buffer):
        raise ValueError("bytes behind the last header")
    return found


def _text(buffer: bytearray, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(buffer, at)
    if size < 0:
        return None, at
    if at + size > len(buffer):
        raise ValueError("a header that is cut off")
    return bytes(buffer[at : at + size]), at + size
