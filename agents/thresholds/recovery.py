"""Restores the contexts table from its changelog, in batches; the row of the higher offset wins.

Faust's last-write-wins would take the stale rows of a worker that was stopped and woke up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast

import structlog

from agents.thresholds.clients import Clients
from agents.thresholds.completeness import complete_from
from agents.thresholds.store import NOTHING, ContextStore
from processing.state.rows import PARTITION_KEY, is_row, stale, version
from topics.catalogue import CHANGELOG
from topics.kafka.topic_states import TopicState

log = structlog.get_logger()

WRITE_ROWS: Final = 100_000
"""Changed rows that are buffered before they are written: many records are of the same rows."""


class Restoring:
    """One partition of the store while it is restored."""

    def __init__(self, store: ContextStore, partition: int) -> None:
        self._store, self._partition = store, partition
        self._changed: dict[bytes, bytes | None] = {}
        self._empty = next(store.scan(partition), None) is None
        self.stale_keys: set[bytes] = set()
        """Keys whose last row in the changelog is a stale one."""

    def apply(self, keys: Iterable[bytes | None], rows: Iterable[bytes | None], end: int) -> None:
        """Apply records of the changelog in their order; `end`: the offset after them."""
        changed, stale_keys = self._changed, self.stale_keys
        for key, row in zip(keys, rows, strict=True):
            if key is None:
                log.warning("changelog.unreadable", partition=self._partition, key=None)
                continue
            if key in changed:
                ours = changed[key]
            else:
                ours = None if self._empty else self._store.get_row(self._partition, key)
            if not is_row(key, row):
                log.warning("changelog.unreadable", partition=self._partition, key=repr(key))
                if ours is not None:
                    stale_keys.add(key)
            elif stale(ours, row):
                stale_keys.add(key)
            else:
                if stale_keys:
                    stale_keys.discard(key)
                changed[key] = row
        if len(changed) >= WRITE_ROWS:
            self.write(end - 1)

    def write(self, offset: int) -> None:
        """Write the changed rows, with the changelog offset that the store then holds."""
        self._store.write_rows(self._partition, self._changed.items(), offset)
        self._changed.clear()
        self._empty = False


class Recovered(NamedTuple):
    """The result of the recovery of one partition."""

    stale_keys: set[bytes]
    """Keys whose last row is a stale one."""
    complete_from: int
    """Every row is in the changelog at or after this offset."""


async def recover(
    store: ContextStore, clients: Clients, kafka: str, partitions: Iterable[int]
) -> Mapping[int, Recovered]:
    """Bring partitions of the store up to the end of the changelog.

    Rows of an older log epoch are dropped if the changelog has the partition's own row, and are
    left as they are if not: they may have to be migrated. Raises `BrokerUnreachable` and
    `TopicsMissing`.
    """
    state = await clients.topic_state(kafka, CHANGELOG.name)
    end = {partition: state.end[partition] for partition in partitions}
    complete = await _complete_from(clients, kafka, state.begin, end)
    begin, restoring = {}, {}
    for partition in await _drop_old_rows(store, clients, kafka, state, end):
        held = store.held_offset(partition)
        first = complete[partition] if held in (None, NOTHING) else held + 1
        begin[partition] = max(state.begin[partition], first)
        restoring[partition] = Restoring(store, partition)
    count = 0
    wanted = {partition: end[partition] for partition in begin}
    async for batch in clients.read_batches(kafka, CHANGELOG.name, begin, wanted):
        keys = cast("list[bytes]", batch.keys)  # a compacted topic takes no record without one
        restoring[batch.partition].apply(keys, batch.values, batch.end)
        count += len(batch)
    for partition, each in restoring.items():
        if begin[partition] < end[partition]:
            each.write(end[partition] - 1)
    log.info("changelog.restored", partitions=len(restoring), records=count)
    return {
        partition: Recovered(
            restoring[partition].stale_keys if partition in restoring else set(),
            complete[partition],
        )
        for partition in end
    }


async def _drop_old_rows(
    store: ContextStore,
    clients: Clients,
    kafka: str,
    state: TopicState,
    partitions: Iterable[int],
) -> list[int]:
    """Drop rows that the changelog replaces; return the partitions that are to be restored."""
    own = {partition: store.get_row(partition, PARTITION_KEY) for partition in partitions}
    old = [number for number, row in own.items() if row and version(row)[0] < store.epoch]
    adopted = await adopted_partitions(store.epoch, clients, kafka, state, old)
    for number, row in own.items():
        if number in adopted or (row is None and _is_unfinished(store, number)):
            await store.drop_rows(number)
    return [number for number in own if number not in old or number in adopted]


def _is_unfinished(store: ContextStore, partition: int) -> bool:
    """Return whether a table without its own row was left by a restore under an older epoch."""
    held = store.held_offset(partition)
    return held is None and next(store.scan(partition), None) is not None


async def adopted_partitions(
    epoch: int, clients: Clients, kafka: str, state: TopicState, partitions: Iterable[int]
) -> set[int]:
    """Return those of `partitions` whose own row of log epoch `epoch` is in the changelog.

    It is written last: the changelog has all rows of the partition.
    """
    begin = {partition: state.begin[partition] for partition in partitions}
    end = {partition: state.end[partition] for partition in begin}
    found = set()
    async for batch in clients.read_batches(kafka, CHANGELOG.name, begin, end):
        for key, row in zip(batch.keys, batch.values, strict=True):
            if key == PARTITION_KEY and row and is_row(key, row) and version(row)[0] == epoch:
                found.add(batch.partition)
    return found


async def _complete_from(
    clients: Clients, kafka: str, begin: Mapping[int, int], end: Mapping[int, int]
) -> Mapping[int, int]:
    """Return by partition the completeness header of its last record."""
    found = dict.fromkeys(end, 0)
    last = {partition: end[partition] - 1 for partition in end if begin[partition] < end[partition]}
    async for record in clients.read_records(kafka, CHANGELOG.name, last, end):
        found[record.partition] = complete_from(record.headers)
    return found
