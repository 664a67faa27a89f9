"""Collects the records of one partition into batches."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

from processing.records.batch import RecordBatch, empty_batch
from topics.kafka.reader import LogTruncated

RECORDS_AT_ONCE: Final = 2_000
BYTES_AT_ONCE: Final = 2_000_000


async def batched(
    records: AsyncIterable[Any], topic: str, partition: int, begin: int
) -> AsyncIterator[RecordBatch]:
    """Yield records, as aiokafka gives them, in batches; the first begins at offset `begin`.

    Raises `LogTruncated` where retention is faster, after all that was read before.
    """
    batch, size = empty_batch(topic, partition, begin), 0
    truncated: LogTruncated | None = None
    try:
        async for record in records:
            batch.offsets.append(record.offset)
            batch.timestamps.append(record.timestamp)
            batch.keys.append(record.key)
            batch.values.append(record.value)
            if record.headers:
                batch.headers[record.offset] = record.headers
            batch.end = record.offset + 1
            size += len(record.value or b"")
            if len(batch) >= RECORDS_AT_ONCE or size >= BYTES_AT_ONCE:
                yield batch
                batch, size = empty_batch(topic, partition, batch.end), 0
    except LogTruncated as error:
        truncated = error
    if len(batch):
        yield batch
    if truncated is not None:
        raise truncated
