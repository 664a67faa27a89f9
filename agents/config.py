"""The configuration of a worker, and the interface of its agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agents.health.metrics import WorkerCounts
from memory.embedding.choice import EmbeddingConfig
from memory.store.limits import USUAL, USUAL_WRITES, RetentionLimits, WriteLimits
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.records.dlq_limits import DlqLimits
from processing.state.tombstones import MARKER_RETENTION_S
from processing.worker_report import STUCK_AFTER_S

if TYPE_CHECKING:
    from faust.types import TP


@dataclass(frozen=True)
class WorkerConfig:
    """Read once at the edge and passed down."""

    kafka: str
    postgres: str
    redis: str
    data: Path
    """This worker's own directory."""
    rules: LearningConfig
    instance: str
    """Name of this worker within its group, for static membership."""
    limits: DlqLimits = field(default_factory=DlqLimits)
    stuck_after_s: float = STUCK_AFTER_S
    """Without progress for so long, it reports that it is stuck; 0: never."""
    merge_every_s: float = 10.0
    """Seconds between two reports of evidence, from which tenants' defaults are merged."""
    check_redis_s: float = 60.0
    """Seconds between two comparisons of Redis with the table; 0: never."""
    deletion_marks_s: float = MARKER_RETENTION_S
    """How long the mark of a deleted context stays: see `processing.state.tombstones`."""
    health: str = ""
    """Where it answers health checks, host:port; empty: it answers none."""
    spans_topic: str = ""
    """Topic from which the worker of spans reads; empty: none."""
    memory: bool = True
    """Whether the runs of stored events are noted for the memory worker."""
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    """The embedding model of the memory worker."""
    retrievals_days: float = 30.0
    """How long the memory keeps what was retrieved, used and judged."""
    pack_after_days: float = 7.0
    """Days after its last event for which a run's events are kept as rows; 0: always."""
    retention: RetentionLimits = USUAL
    """What the memory worker keeps of events and cases."""
    writes: WriteLimits = USUAL_WRITES
    """How many episodes of a writer count for others."""
    weigh_floods: bool = True
    """Whether a user that floods is downweighted, and not only reported in a notice."""
    notices_days: float = 30.0
    """How long the table of notices keeps those that were sent."""


class CannotOpenYet(Exception):
    """Assigned partitions cannot be opened before something else has happened; tried again."""

    def __init__(self, what: str, reason: str) -> None:
        """`what`: it waits for; `reason`: why, and what to do."""
        super().__init__(f"waits for {what}: {reason}")
        self.what, self.reason = what, reason


class PartitionAgent(Protocol):
    """Processes the partitions that are assigned to a worker."""

    counts: WorkerCounts

    async def positions(self, assigned: set[TP], committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Open the assigned partitions; return the offset at which each begins.

        `committed`: the group's committed offsets, which are only hints. Raises `CannotOpenYet`.
        """
        ...

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Take one batch; return when there is room for the next."""
        ...

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition that has nothing waiting or in flight."""
        ...

    def away(self) -> set[str]:
        """Return the services that its own work cannot reach."""
        ...

    async def drain(self) -> None:
        """Finish what is in flight and drop what waits: partitions are being revoked."""
        ...

    async def close(self) -> None:
        """Finish what is in flight and close every connection: the worker ends."""
        ...
