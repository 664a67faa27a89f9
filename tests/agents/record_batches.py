"""Record batches of Kafka, encoded as a broker sends them, and logs of such."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

ABORT, COMMIT = struct.pack(">hh", 0, 0), struct.pack(">hh", 0, 1)
GZIP = 1
NO_PRODUCER = -1

CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT, HEADER_BYTES = 17, 21, 23, 57, 61
CONTROL = 0x20


@dataclass(frozen=True)
class Batch:
    """One record batch: its records by offset delta, and how many offsets it takes."""

    records: tuple[tuple[Any, ...], ...]
    """(offset delta, timestamp, key, value) and, where it has any, headers"""
    last_delta: int
    gap: int
    """offsets that compaction took away before it"""
    codec: int = 0
    """aiokafka's number of what compresses it; 0: nothing"""
    producer: int = NO_PRODUCER
    control: bool = False
    wrong_crc: bool = False


def encode(batch: Batch, base: int) -> bytes:
    """Return a batch as a broker sends it, its first offset `base`."""
    numbered = min(batch.producer, 0)  # -1 without a producer, as a broker sends it
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=batch.codec,
        is_transactional=batch.producer != NO_PRODUCER,
        producer_id=batch.producer,
        producer_epoch=numbered,
        base_sequence=numbered,
        batch_size=1 << 20,
    )
    for delta, timestamp, key, value, *headers in batch.records:
        assert builder.append(delta, timestamp, key, value, list(*headers)) is not None
    raw = bytearray(builder.build())
    struct.pack_into(">q", raw, 0, base)
    struct.pack_into(">i", raw, LAST_DELTA_AT, batch.last_delta)
    if batch.control:
        (attributes,) = struct.unpack_from(">h", raw, ATTRIBUTES_AT)
        struct.pack_into(">h", raw, ATTRIBUTES_AT, attributes | CONTROL)
    crc = calc_crc32c(bytes(raw[ATTRIBUTES_AT:]))
    struct.pack_into(">I", raw, CRC_AT, crc ^ 0xFFFF if batch.wrong_crc else crc)
    return bytes(raw)


def with_section(raw: bytes, section: bytes, codec: int = 0) -> bytes:
    """Return a batch of other records, marked as compressed by `codec`."""
    changed = bytearray(raw[:HEADER_BYTES] + section)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">h", changed, ATTRIBUTES_AT, codec)
    struct.pack_into(">I", changed, CRC_AT, calc_crc32c(bytes(changed[ATTRIBUTES_AT:])))
    return bytes(changed)


class Log(NamedTuple):
    """Encoded batches, each with its first offset and the one after it; which are corrupt."""

    batches: list[tuple[int, int, bytes]]
    corrupt: list[tuple[int, int]]
    transactions: list[tuple[int, int, int]]
    """of those aborted: producer id, first offset, offset of the marker"""

    def fetch(self, offset: int) -> bytes:
        """What a broker sends: whole batches, from the one that holds `offset` on."""
        return b"".join(raw for _base, end, raw in self.batches if end > offset)

    def corrupt_after(self, offset: int) -> int:
        """The first offset of the corrupt batch that a fetch from `offset` meets."""
        return next(max(base, offset) for base, end in self.corrupt if end > offset)

    def aborted(self, offset: int) -> list[tuple[int, int]]:
        """What a broker lists beside that: the aborted transactions that reach past `offset`."""
        return [(producer, at) for producer, at, marker in self.transactions if marker >= offset]

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0


def write(batches: Sequence[Batch], first: int) -> Log:
    """Return the log of these batches, whose offsets begin at `first`."""
    offset, encoded, corrupt, aborted = first, [], [], []
    open_since: dict[int, int] = {}
    for batch in batches:
        base = offset + batch.gap
        offset = base + batch.last_delta + 1
        encoded.append((base, offset, encode(batch, base)))
        if batch.wrong_crc:
            corrupt.append((base, offset))
        if batch.producer == NO_PRODUCER:
            continue
        if not batch.control:
            open_since.setdefault(batch.producer, base)
            continue
        begun = open_since.pop(batch.producer, None)
        if begun is not None and batch.records[0][2] == ABORT:
            aborted.append((batch.producer, begun, base))
    return Log(encoded, corrupt, aborted)
