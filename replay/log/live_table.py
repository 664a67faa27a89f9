"""Reads the contexts table from its changelog topic; no worker has to run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from processing.control.rebuild_state import UNDERWAY, followup_in
from processing.state.rows import (
    PARTITION_KEY,
    TaskStateRow,
    decode_partition,
    is_deleted,
    is_row,
    stale,
    version,
)
from topics.catalogue import CHANGELOG
from topics.epoch import Epoch
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_states import TopicState

Rows = dict[bytes, bytes]

_TAIL: Final = 500
"""Records of the changelog among which a partition's own row is looked for first: it ends each
commit."""
SETTLED_S: Final = 60.0
"""Longest wait for a rebuild in progress."""


@dataclass
class TablePartition:
    """The rows of one partition. `begin`: rows as they stood before offset 0 of this log epoch."""

    rows: Rows = field(default_factory=dict)
    begin: Rows = field(default_factory=dict)

    @property
    def applied_offset(self) -> int:
        """The last offset applied; -1 where nothing is."""
        return applied_offset(self.rows)


async def read_table(kafka: str, state: TopicState, partition: int, epoch: int) -> TablePartition:
    """Return one partition of the table in a log epoch, by the rule of recovery.

    `state`: of the changelog. Raises `BrokerUnreachable`.
    """
    found = TablePartition()
    begin, end = {partition: state.begin[partition]}, {partition: state.end[partition]}
    async for record in read_records(kafka, CHANGELOG.name, begin, end):
        key, row = record.key, record.value
        taken = is_row(key, row) and apply_record(found.rows, key, row)
        if taken and row is not None and version(row) == (epoch, -1):
            found.begin[key] = row
    found.rows = live(found.rows)
    return found


def apply_record(rows: Rows, key: bytes, row: bytes | None) -> bool:
    """Apply a record of the changelog to rows, deleted ones among them; False: it is stale."""
    if stale(rows.get(key), row):
        return False
    if row is None:
        rows.pop(key, None)
    else:
        rows[key] = row
    return True


async def read_settled(
    kafka: str, partition: int, epoch: int, patience_s: float = SETTLED_S
) -> TablePartition:
    """Return one partition of the table once no rebuild of it is in progress.

    After `patience_s` seconds in any case. Raises `BrokerUnreachable` and `TopicsMissing`.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        table = await read_table(kafka, await topic_state(kafka, CHANGELOG.name), partition, epoch)
        if is_settled(table.rows, epoch) or asyncio.get_running_loop().time() > deadline:
            return table
        await asyncio.sleep(0.5)


async def read_whole_table(kafka: str, epoch: Epoch) -> dict[int, TablePartition]:
    """Return every partition of the table. Raises `BrokerUnreachable` and `TopicsMissing`."""
    state = await topic_state(kafka, CHANGELOG.name)
    return {n: await read_table(kafka, state, n, epoch.number) for n in range(epoch.partitions)}


async def read_state_rows(kafka: str) -> dict[int, TaskStateRow]:
    """Return each partition's own row, as far as it has one; of the changelog only the end is read.

    Raises `BrokerUnreachable` and `TopicsMissing`.
    """
    found = await _read_own_rows(kafka)
    return {n: decode_partition(row) for n, row in found.items() if not is_deleted(row)}


async def read_next_offsets(kafka: str, epoch: int) -> dict[int, int]:
    """Return the offset after the last one applied in a log epoch, by partition that has one.

    Raises `BrokerUnreachable` and `TopicsMissing`.
    """
    versions = {n: version(row) for n, row in (await _read_own_rows(kafka)).items()}
    return {n: offset + 1 for n, (of, offset) in versions.items() if of == epoch}


async def _read_own_rows(kafka: str) -> dict[int, bytes]:
    state, tail, found = await topic_state(kafka, CHANGELOG.name), _TAIL, dict[int, bytes]()
    wanted = set(state.end)
    while wanted:
        begin = {n: max(state.begin[n], state.end[n] - tail) for n in wanted}
        async for record in read_records(kafka, CHANGELOG.name, begin, state.end):
            n, row = record.partition, record.value
            ours = record.key == PARTITION_KEY and row and is_row(record.key, row)
            if ours and not stale(found.get(n), row):
                found[n] = row
        wanted = {n for n in wanted if n not in found and begin[n] > state.begin[n]}
        tail *= 16
    return found


def is_settled(rows: Rows, epoch: int) -> bool:
    """Return whether no rebuild of the partition is in progress in a log epoch."""
    begun = followup_in(rows.get(UNDERWAY))
    return begun is None or begun.rebuild.epoch != epoch or begun.offset <= applied_offset(rows)


def applied_offset(rows: Rows) -> int:
    """Return the last offset applied to rows; -1 where nothing is."""
    row = rows.get(PARTITION_KEY)
    return -1 if row is None else version(row)[1]


def live(rows: Rows) -> Rows:
    """Return the rows that are not deleted."""
    return {key: row for key, row in rows.items() if not is_deleted(row)}
