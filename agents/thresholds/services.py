"""What the partitions of one threshold worker share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agents.app import App
from agents.dlq_limit_guard import RefusalGuard
from agents.health.metrics import Counts
from agents.health.stall_guard import Alive
from agents.producer import BatchProducer
from agents.thresholds.redis_publishing import Publishing
from agents.thresholds.store import ContextStore
from processing.config import Rules
from processing.contexts.thresholds import serves, stored_threshold
from processing.state.rows import version
from processing.task import Partition
from topics.epoch import Epoch
from topics.schema.json_schema import Threshold


@dataclass(frozen=True)
class PartitionServices:
    """Clients, counters and limits of a worker; `kafka` is the broker's address."""

    app: App
    kafka: str
    epoch: Epoch
    rules: Rules
    store: ContextStore
    producer: BatchProducer
    publishing: Publishing
    alive: Alive
    counts: Counts
    guard: RefusalGuard

    def new_core(self, partition: int) -> Partition:
        """Return the core of a partition, over the local store, with nothing restored."""
        return Partition(
            partition,
            self.epoch.partitions,
            self.epoch.number,
            self.rules,
            lambda key: self.store.get_row(partition, key),
        )

    def stored(
        self, partition: int, rows: Iterable[tuple[bytes, bytes]], oldest: int = -1
    ) -> list[Threshold]:
        """Return what a partition publishes of its rows, those from offset `oldest` on."""
        return [
            stored_threshold(key, row)
            for key, row in rows
            if serves(partition, key) and version(row)[1] >= oldest
        ]
