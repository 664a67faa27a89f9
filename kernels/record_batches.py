"""Kernel: reads the record batches of a fetch, as Kafka sends them, into columns.

Record batches of format 2 (Kafka protocol guide, "Record Batch"). The caller decompresses. Batches
of transactions, control batches, older formats and invalid ones are left to aiokafka's own code.
"""

# ruff: noqa: PLR0912, PLR0913, PLR0917 - compiled: branches are flat

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kernels.crc32c import crc32c
from kernels.json_tokens import inlined, kept
from processing.records.batch import RECORD_BYTES
from topics.kafka.limits import LARGEST_MS, MOST_HEADERS, MOST_RECORDS

ALL, FULL, TAKEN, COMPRESSED, OTHER = 0, 1, 2, 3, 4
"""Why `unpack` ended: nothing is left; there is enough; the section is read; the next batch is
compressed; the next batch is left to aiokafka."""

# State: where the next batch begins, records read so far, their bytes, the next offset.
CURSOR, RECORDS, BYTES, NEXT = 0, 1, 2, 3
STATE: Final = 4
# A record's columns. A span takes two: its begin and end in the bytes, -1 for none.
OFFSET, TIMESTAMP, VALUE, KEY, HEADERS = 0, 1, 2, 4, 6
COLUMNS: Final = 8
BEFORE_LENGTH: Final = 12
HEADER: Final = 61
_MAGIC, _CRC, ATTRIBUTES, _LAST_DELTA, _TIME, _MOST_TIME, _COUNT = 16, 17, 21, 23, 27, 35, 57
CODEC, _LOG_APPEND, _UNUSUAL = 0x07, 0x08, 0x30
LEAST_RECORD: Final = 7
_LONGEST: Final = 10


@inlined
def number(data: Any, at: int, size: int) -> Any:
    """Return a signed big-endian integer."""
    value = np.int64(data[at]) - (256 if data[at] > 127 else 0)
    for place in range(at + 1, at + size):
        value = value << 8 | np.int64(data[place])
    return value


@inlined
def varint(data: Any, at: int, end: int) -> tuple[Any, int]:
    """Return a zigzag varint (Protocol Buffers), and where it ends; -1 where it does not."""
    value, shift = np.uint64(0), np.uint64(0)
    for place in range(at, min(end, at + _LONGEST)):
        value |= np.uint64(data[place] & 0x7F) << shift
        if data[place] < 0x80:
            zigzag = np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
            return zigzag, place + 1
        shift += np.uint64(7)
    return 0, -1


@inlined
def read_records(
    data: Any, at: int, end: int, base: int, last: int, time: int, appended: int, count: int,
    first: int, state: Any, columns: Any,
) -> bool:  # fmt: skip
    """Read the records of a batch from offset `first` on; return whether the batch is valid.

    `last`: largest offset, relative to `base`. `time`: base of the timestamps, ignored where
    `appended` >= 0, which then is the timestamp of all.
    """
    taken, taken_bytes = state[RECORDS], state[BYTES]
    before, with_headers = -1, 0
    if appended < 0 and not -LARGEST_MS <= time <= LARGEST_MS:
        return False
    for _record in range(count):
        length, at = varint(data, at, end)
        stop = at + length
        if at < 0 or length < 0 or stop > end:
            return False
        if at >= stop or data[at] != 0:  # attributes: Kafka defines none
            return False
        later, at = varint(data, at + 1, stop)
        if at < 0:
            return False
        delta, at = varint(data, at, stop)
        if at < 0 or delta <= before or delta > last:
            return False
        before = delta
        if appended < 0 and not -LARGEST_MS - time <= later <= LARGEST_MS - time:
            return False
        key, key_at = varint(data, at, stop)
        if key_at < 0 or key > stop - key_at:
            return False
        size, value_at = varint(data, key_at + max(key, 0), stop)
        if value_at < 0 or size > stop - value_at:
            return False
        headers_at = value_at + max(size, 0)
        headers, after = varint(data, headers_at, stop)
        if after < 0 or headers < 0 or (headers == 0 and after != stop):
            return False
        with_headers += min(headers, MOST_HEADERS + 1)
        if with_headers > MOST_HEADERS:
            return False
        at = stop
        if base + delta < first:
            continue
        row = columns[taken]
        row[OFFSET] = base + delta
        row[TIMESTAMP] = appended if appended >= 0 else time + later
        row[VALUE], row[VALUE + 1] = (value_at, headers_at) if size >= 0 else (-1, -1)
        row[KEY], row[KEY + 1] = (key_at, key_at + key) if key >= 0 else (-1, -1)
        row[HEADERS], row[HEADERS + 1] = (headers_at, stop) if headers > 0 else (-1, -1)
        taken_bytes += max(length + headers * RECORD_BYTES, RECORD_BYTES)
        taken += 1
    if at != end:
        return False
    state[RECORDS], state[BYTES] = taken, taken_bytes
    return True


@inlined
def intact(words: Any, data: Any, at: int, end: int) -> bool:
    """Return whether a batch has the checksum in its header."""
    stored = np.uint64(number(data, at + _CRC, 4)) & np.uint64(0xFFFFFFFF)
    return bool(crc32c(words, data, at + ATTRIBUTES, end) == stored)


@kept
def records_in(data: Any, at: int, end: int) -> int:
    """Return an upper bound of the records in the batches from `at` on."""
    count = 0
    while at + BEFORE_LENGTH <= end:
        stop = at + BEFORE_LENGTH + number(data, at + 8, 4)
        if stop > end or stop < at + HEADER:
            break
        compressed = number(data, at + ATTRIBUTES, 2) & CODEC
        most = MOST_RECORDS if compressed else (stop - at) // LEAST_RECORD
        count += min(max(number(data, at + _COUNT, 4), 0), most)
        at = stop
    return count


@kept
def unpack(
    words: Any, data: Any, end: int, section: int, check: bool, first: int, most: int, state: Any,
    columns: Any,
) -> int:  # fmt: skip
    """Read the records of whole batches from the cursor on; return why that ended.

    Reads records from offset `first` on, until they have `most` bytes. `words`: at each index of
    `data` the eight bytes from there on, where there are so many. `data`: a fetch, up to `end`;
    after it the decompressed records of the first batch, from `section` to the end of `data` (0: it
    is not decompressed). `check`: compare checksums.
    """
    while True:
        at = state[CURSOR]
        if at + BEFORE_LENGTH > end:
            return ALL
        stop = at + BEFORE_LENGTH + number(data, at + 8, 4)
        if stop > end:
            return ALL  # the broker cut it off
        if state[BYTES] >= most:
            return FULL
        if stop < at + HEADER or data[at + _MAGIC] != 2:
            return OTHER
        attributes, count = number(data, at + ATTRIBUTES, 2), number(data, at + _COUNT, 4)
        if attributes & _UNUSUAL or number(data, at + _LAST_DELTA, 4) < 0:
            return OTHER
        packed = attributes & CODEC != 0
        if packed and section == 0:
            return COMPRESSED
        begin, last = (section, data.size) if packed else (at + HEADER, stop)
        room = min(columns.shape[0] - state[RECORDS], MOST_RECORDS)
        if count < 0 or count > room or count * LEAST_RECORD > last - begin:
            return OTHER
        if check and not intact(words, data, at, stop):
            return OTHER
        base, time = number(data, at, 8), number(data, at + _TIME, 8)
        appended, last_delta = -1, number(data, at + _LAST_DELTA, 4)
        if attributes & _LOG_APPEND:
            appended = number(data, at + _MOST_TIME, 8)
            if not 0 <= appended <= LARGEST_MS:
                return OTHER
        if not read_records(
            data, begin, last, base, last_delta, time, appended, count, first, state, columns
        ):  # fmt: skip
            return OTHER
        state[CURSOR], state[NEXT] = stop, base + last_delta + 1
        if packed:
            return TAKEN
