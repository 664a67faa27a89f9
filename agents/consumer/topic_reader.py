"""Reads a topic batch-wise, outside any consumer group: for recovery and rebuilds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from agents.consumer.fetch_loop import fetched_records
from processing.records.batch import RecordBatch
from topics.kafka.reader import drop_finished, reading

FETCH_BYTES: Final = 4_194_304
"""Of one partition at a time."""
_WAIT_S: Final = 0.5


async def read_batches(
    kafka: str, topic: str, begin: Mapping[int, int], end: Mapping[int, int]
) -> AsyncIterator[RecordBatch]:
    """Yield the records from `begin` up to (not including) `end`, by partition.

    Raises `BrokerUnreachable` and `LogTruncated`.
    """
    wanted = {partition for partition in begin if begin[partition] < end[partition]}
    if not wanted:
        return
    places = {partition: begin[partition] for partition in wanted}
    async with reading(kafka, topic, places, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        fetcher = consumer._fetcher
        while wanted:
            with fetcher._subscriptions.fetch_context():
                drained = await fetched_records(fetcher, None, {topic}, _WAIT_S, None)
            for batches in drained.values():
                for batch in batches:
                    batch.drop_from(end[batch.partition])
                    if batch:
                        yield batch
            await drop_finished(consumer, topic, wanted, end)
