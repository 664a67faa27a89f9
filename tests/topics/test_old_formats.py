"""Messages of formats 0 and 1, as segments of before Kafka 0.11 hold them."""

from __future__ import annotations

import asyncio
import struct
import zlib
from typing import Any

import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.structs import TopicPartition

from agents.consumer.fetch_to_batch import to_record_batch
from processing.records.batch import RecordBatch
from processing.records.decode import WITHOUT_TIMESTAMP, decode_record
from topics.kafka import decompression, old_formats
from topics.kafka.fetch_patch import RetainedRecords

TP = TopicPartition("source", 3)
EVENT = (
    b'{"id":"0199c82c-c000-7abc-8def-0123456789ab","event_type":"task_complete","tenant":"acme",'
    b'"workflow_type":"refund","workflow_id":"w1","timestamp":1760000000000}'
)
Seen = list[tuple[int, int, bytes | None, bytes | None]]


def messages(magic: Any, codec: int = 0, first: int = 0, count: int = 3) -> bytes:
    """Return messages as a broker sends them: the offset around compressed ones is their last."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for place in range(count):
        # Within compressed messages of format 1 offsets are relative.
        offset = place if codec and magic else first + place
        builder.append(offset, 1_000 + place, b"k", EVENT)
    raw = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", raw, 0, first + count - 1)
    return bytes(raw)


def drained(raw: bytes, position: int) -> RecordBatch | None:
    async def body() -> RecordBatch | None:
        assignment = Assignment([TP])
        state = assignment.state_value(TP)
        state.await_reset(-2)
        state.reset_to(position)
        records = PartitionRecords(
            TP, RetainedRecords(raw), [], position, None, None, True, READ_COMMITTED
        )
        return to_record_batch(
            FetchResult(TP, assignment=assignment, partition_records=records, backoff=0)
        )

    return asyncio.run(body())


def seen(raw: bytes, position: int = 0) -> Seen:
    batch = drained(raw, position)
    assert batch is not None
    return list(zip(batch.offsets, batch.timestamps, batch.keys, batch.values, strict=True))


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_records_of_format_1_are_read_as_they_are(codec: int) -> None:
    expected = [(7 + n, 1_000 + n, b"k", EVENT) for n in range(3)]
    assert seen(messages(1, codec, first=7), 7) == expected
    assert seen(messages(1, codec, first=7), 8) == expected[1:]


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_a_record_of_format_0_is_one_dead_letter_with_its_reason(codec: int) -> None:
    found = seen(messages(0, codec, first=7), 7)
    assert found == [(7 + n, -1, b"k", EVENT) for n in range(3)]
    events, (refusal,) = decode_record(EVENT, found[0][1])
    assert not events
    assert refusal == (EVENT, WITHOUT_TIMESTAMP, None)


def with_value(raw: bytes, value: bytes) -> bytes:
    """Return a message of format 1 without a key that has another value, its checksum right."""
    body = raw[16:26] + struct.pack(">ii", -1, len(value)) + value
    framed = struct.pack(">I", zlib.crc32(body)) + body
    return raw[:8] + struct.pack(">i", len(framed)) + framed


@pytest.mark.parametrize("value", [b"", b"no gzip at all", b"\x1f\x8b\x08\0\0\0\0\0\0\xff"])
def test_a_compressed_message_that_cannot_be_read_is_one_record(value: bytes) -> None:
    raw = with_value(messages(1, 1, first=7), value)
    assert seen(raw, 7) == [(9, -1, None, raw)]
    assert seen(raw + messages(1, first=10), 10) == [
        (10 + n, 1_000 + n, b"k", EVENT) for n in range(3)
    ]


def test_a_compressed_message_of_very_much_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "MOST_BYTES", 400)
    raw = messages(1, 1, first=7)
    assert seen(raw, 7) == [(9, -1, None, raw)]
    monkeypatch.setattr(decompression, "MOST_BYTES", 64_000_000)
    monkeypatch.setattr(old_formats, "MOST_RECORDS", 2)
    assert seen(raw, 7) == [(9, -1, None, raw)]
