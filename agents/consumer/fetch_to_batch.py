"""Converts a fetched partition to one `RecordBatch`, without a ConsumerRecord per record.

Follows `aiokafka.consumer.fetcher.PartitionRecords._unpack_records` step by step: CRC, aborted
transactions, control batches, holes left by compaction, and the position after them.
"""

from __future__ import annotations

from typing import Any, Final

from aiokafka.consumer.fetcher import READ_COMMITTED

from processing.kernel_handle import kernels
from processing.records.batch import RecordBatch, empty_batch, record_bytes
from topics.kafka.fetch_patch import RetainedRecords
from topics.kafka.readable_batches import UnreadableBatch

MAX_BYTES: Final = 4_194_304
"""Of the records in one batch, plus one Kafka batch: all of a fetch that is not compressed. A
compressed one may hold ten times as much, too much to be queued or applied at once: a worker that
gets little CPU would stall beyond its session timeout, and again after its restart."""

MIN_COMPILED_BYTES: Final = 20_000
"""Of a fetch, as it is sent, from which on compiled code unpacks it: a call takes 20 us, and small
fetches are not scanned anyway."""


def to_record_batch(fetched: Any, most_bytes: int = MAX_BYTES) -> RecordBatch | None:
    """Return what is left in an aiokafka `FetchResult` and move the consumer's position.

    It stops after `most_bytes` of records, and leaves the rest for the next call. Returns None
    where nothing may be returned (partition paused, revoked or sought elsewhere), and a batch
    without records where only markers, aborted records and holes were fetched: their offsets count
    as processed too, or they would look like lag and a gap. It also stops before a batch whose
    checksum does not match, so that the batch is fetched again; the same bytes again are one record
    (`topics.kafka.readable_batches`).
    """
    tp = fetched._topic_partition
    if not fetched.has_more():
        return None
    source = fetched._partition_records
    # A generator in a reference cycle, which keeps megabytes until a full garbage collection.
    source._records_iterator = None
    if not fetched.check_assignment(tp):
        return None
    batch: RecordBatch | None = None
    rest = False
    try:
        batch, rest = _unpacked(source, tp, most_bytes)
        end = _readable_end(source, fetched._assignment.state_value(tp))
        if batch is not None and batch.begin < end < batch.end:
            # A damaged batch claims to end beyond the log: the next records would be skipped.
            batch.end = source.next_fetch_offset = end
        fetched._update_position()
        if batch is not None:
            batch.lag = max(0, end - batch.end)
    finally:
        # Also after an error: what follows must not be returned without the unreadable part.
        if not rest:
            fetched._partition_records = None
    return batch


def _unpacked(source: Any, tp: Any, most_bytes: int) -> tuple[RecordBatch | None, bool]:
    """Return the batch, None if empty, and whether more is left for the next call."""
    compiled = kernels()
    begin = source.next_fetch_offset
    records = source._records
    if (
        compiled is not None
        and type(records) is RetainedRecords
        and len(records.data) >= MIN_COMPILED_BYTES
    ):
        # Imports numpy, which is not needed without compiled code.
        from agents.consumer.columnar_unpack import unpack

        packed, rest = unpack(source, tp, most_bytes, compiled)
        if packed is not None:
            return packed, rest
        source._records = records.rest()  # nothing where all was holes
    batch = empty_batch(tp.topic, tp.partition, begin)
    rest = _record_by_record(source, batch, most_bytes)
    batch.end = source.next_fetch_offset
    return (batch if batch.end > begin else None), rest


def _record_by_record(source: Any, batch: RecordBatch, most_bytes: int) -> bool:
    """Append the records that aiokafka's own code reads; return whether more is left."""
    records, size = source._records, 0
    while records.has_next():
        if size >= most_bytes:
            return True
        records_of = records.next_batch()
        if _aborted(source, records_of) or records_of.is_control_batch:
            source.next_fetch_offset = records_of.next_offset
            continue
        size += _append(batch, records_of, source.next_fetch_offset, most_bytes)
        # Also past records that compaction removed from the end of the batch.
        source.next_fetch_offset = records_of.next_offset
    return False


def _append(batch: RecordBatch, records_of: Any, first: int, most_bytes: int) -> int:
    """Append records from offset `first` on; return their bytes."""
    offsets, timestamps = batch.offsets.append, batch.timestamps.append
    keys, values = batch.keys.append, batch.values.append
    size = 0
    for record in records_of:  # one loop: reading an attribute costs as much as a list
        offset, value = record.offset, record.value
        if offset < first:
            continue
        offsets(offset)
        timestamps(record.timestamp)
        keys(record.key)
        values(value)
        # Ends the batch: an unreadable record takes as long as a whole fetch.
        unreadable = type(record) is UnreadableBatch
        size += most_bytes if unreadable else record_bytes(record.key, value, record.headers)
        if record.headers:
            batch.headers[offset] = record.headers
    return size


def _readable_end(source: Any, state: Any) -> int:
    """Return the offset up to which the broker has records for this consumer."""
    if source._isolation_level == READ_COMMITTED and state.lso is not None and state.lso >= 0:
        return int(state.lso)
    return state.highwater or 0


def _aborted(source: Any, records_of: Any) -> bool:
    if source._isolation_level != READ_COMMITTED or records_of.producer_id is None:
        return False
    source._consume_aborted_up_to(records_of.base_offset)
    if records_of.is_control_batch and source._contains_abort_marker(records_of):
        source._aborted_producers.discard(records_of.producer_id)
    return bool(records_of.is_transactional and records_of.producer_id in source._aborted_producers)
