"""Leaves out what purges cover when the log is read back: rebuilds, backtests and exports skip it.

`verify` does not: the live table is a function of the whole log, the purge at its own offset
included, and is compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping

from processing.control.messages import read_control
from processing.records.batch import RecordBatch
from processing.records.decode import MALFORMED, split_frame
from topics.catalogue import EVENTS
from topics.control.messages import Purge, is_control
from topics.control.purges import PartitionPurges, PlacedPurge
from topics.kafka.reader import LogTruncated, read_records, topic_state

EMPTY = b"[]"
"""A frame without events: its offset stays, as it does in the live table."""


async def read_log_purges(
    kafka: str, operators_key: bytes | None, partitions: Mapping[int, object] | None = None
) -> dict[int, PartitionPurges]:
    """Return the purges of partitions of `headstart.events`, or of all, as far as the log goes.

    One that is not signed with `operators_key`, where that is given, is none. Reads the whole log.
    Raises `BrokerUnreachable` and `TopicsMissing`.
    """
    while True:
        state = await topic_state(kafka, EVENTS.name)
        begin = {n: at for n, at in state.begin.items() if partitions is None or n in partitions}
        found = {n: PartitionPurges() for n in begin}
        try:
            async for record in read_records(kafka, EVENTS.name, begin, state.end):
                if record.headers and is_control(record.headers):
                    purge = _purge_in(record, operators_key)
                    if purge is not None:
                        found[record.partition].add(PlacedPurge(purge, record.offset))
        except LogTruncated as error:
            if error.begin <= error.offset:
                raise
            continue  # retention was faster
        return found


def _purge_in(record: object, operators_key: bytes | None) -> Purge | None:
    value: bytes = getattr(record, "value", None) or b""
    if b'"purge"' not in value:
        return None
    headers, at = getattr(record, "headers", ()), getattr(record, "timestamp", 0)
    try:
        control = read_control(value, headers, at, operators_key)
    except ValueError:
        return None
    return control if isinstance(control, Purge) else None


def leave_out_purged(batch: RecordBatch, purges: PartitionPurges) -> int:
    """Remove covered events from the records of a batch; return how many."""
    removed = 0
    if not purges:
        return removed
    for position, value in enumerate(batch.values):
        offset = batch.offsets[position]
        if value is None or is_control(batch.headers.get(offset, ())):
            continue
        try:
            events = split_frame(value) if value.lstrip()[:1] == b"[" else [bytes(value)]
        except MALFORMED:
            continue  # refused by every reader
        kept = purges.kept(events, offset)
        if len(kept) < len(events):
            removed += len(events) - len(kept)
            batch.values[position] = b"[" + b",".join(kept) + b"]" if kept else EMPTY
    return removed
