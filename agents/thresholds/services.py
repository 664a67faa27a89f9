"""The services that the partitions of one threshold worker share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agents.app import App
from agents.dlq_limit_guard import DlqLimitGuard
from agents.environment import Environment
from agents.health.metrics import WorkerCounts
from agents.health.stall_guard import StallGuard
from agents.producer import BatchProducer
from agents.thresholds.clients import Clients
from agents.thresholds.redis_publishing import RedisPublishQueue
from agents.thresholds.store import ContextStore
from processing.config import LearningConfig
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.state.rows import version
from processing.task import PartitionTask
from topics.epoch import Epoch
from topics.schema.json_schema import PublishedThreshold


@dataclass(frozen=True)
class PartitionServices:
    """Clients, counters and limits of a worker; `kafka` is the broker's address."""

    app: App
    env: Environment
    clients: Clients
    kafka: str
    epoch: Epoch
    rules: LearningConfig
    store: ContextStore
    producer: BatchProducer
    publish_queue: RedisPublishQueue
    stall_guard: StallGuard
    counts: WorkerCounts
    dlq_guard: DlqLimitGuard

    def new_core(self, partition: int) -> PartitionTask:
        """Return the core of a partition, over the local store, with nothing restored."""
        return PartitionTask(
            partition,
            self.epoch.partitions,
            self.epoch.number,
            self.rules,
            lambda key: self.store.get_row(partition, key),
        )

    def thresholds_of(
        self, partition: int, rows: Iterable[tuple[bytes, bytes]], oldest: int = -1
    ) -> list[PublishedThreshold]:
        """Return the thresholds of rows that are published, from offset `oldest` on."""
        return [
            threshold_from_row(key, row)
            for key, row in rows
            if is_published(partition, key) and version(row)[1] >= oldest
        ]
