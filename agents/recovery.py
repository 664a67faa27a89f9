"""Restores the contexts table from its changelog, in batches; the row of the higher offset wins.

Last-write-wins, as Faust has it, would take the old rows that a worker appended which was stopped
and woke up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from agents.store import ContextStore
from processing.rows import stale
from topics.catalogue import CHANGELOG
from topics.reading import read_records, topic_state

log = structlog.get_logger()

ROWS_AT_ONCE: Final = 20_000
"""Records read before what changed is written: many are of the same rows."""


class Restoring:
    """One partition of the store while it is restored."""

    def __init__(self, store: ContextStore, partition: int) -> None:
        self._store, self._partition = store, partition
        self._changed: dict[bytes, bytes | None] = {}
        self._records = 0
        self.overtaken: set[bytes] = set()
        """Keys whose last row in the changelog is not the right one."""

    def apply(self, key: bytes, row: bytes | None, offset: int) -> None:
        """Take up one record of the changelog."""
        if key in self._changed:
            ours = self._changed[key]
        else:
            ours = self._store.get_row(self._partition, key)
        if stale(ours, row):
            self.overtaken.add(key)
        else:
            self.overtaken.discard(key)
            self._changed[key] = row
        self._records += 1
        if self._records >= ROWS_AT_ONCE:
            self.write(offset)

    def write(self, offset: int) -> None:
        """Write what changed, with the changelog offset that the store then holds."""
        self._store.write_rows(self._partition, self._changed.items(), offset)
        self._changed.clear()
        self._records = 0


async def recover(
    store: ContextStore, kafka: str, partitions: Iterable[int]
) -> Mapping[int, set[bytes]]:
    """Bring partitions of the store up to the end of the changelog.

    Returns, by partition, the keys whose last row in the changelog is not the right one. Raises
    `BrokerUnreachable` and `TopicsMissing`.
    """
    state = await topic_state(kafka, CHANGELOG.name)
    begin, end, restoring = {}, {}, {}
    for partition in partitions:
        held = store.held_offset(partition)
        begin[partition] = max(state.begin[partition], 0 if held is None else held + 1)
        end[partition] = state.end[partition]
        restoring[partition] = Restoring(store, partition)
    count = 0
    async for record in read_records(kafka, CHANGELOG.name, begin, end):
        restoring[record.partition].apply(record.key, record.value, record.offset)
        count += 1
    for partition, each in restoring.items():
        if begin[partition] < end[partition]:
            each.write(end[partition] - 1)
    log.info("thresholds.recovered", partitions=len(restoring), records=count)
    return {partition: each.overtaken for partition, each in restoring.items()}
