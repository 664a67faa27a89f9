"""The state of one partition in memory: what the rows of its table hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from processing.config import LearningConfig
from processing.contexts.cache import ContextCache
from processing.control.latest_by_subject import LatestBySubject
from processing.control.learned_defaults import LearnedDefaults
from processing.control.learner_assignments import LearnerAssignments
from processing.control.rebuild_state import RebuildState
from processing.control.resets_and_seeds import ResetsAndSeeds
from processing.state.clock import PartitionClock
from processing.state.deduplication import Deduplicator
from processing.state.expiry_budget import ExpiryBudget
from processing.state.open_predictions import OpenPredictions
from processing.state.rows import (
    CONTEXT,
    CONTROL,
    DEFAULT,
    EVIDENCE,
    SPOOL,
    START,
    TaskStateRow,
    decode_partition,
)

CACHED: Final = 400_000
"""Most contexts that a worker caches where it owns every partition, about 1,700 bytes each; the
same limit holds for spool positions, about 400 bytes each."""


class PartitionState:
    """Everything that follows from a prefix of one partition's log."""

    def __init__(
        self,
        config: LearningConfig,
        partitions: int,
        epoch: int,
        load: Callable[[bytes], bytes | None],
    ) -> None:
        """Start before the first record. `load` reads a row of the table."""
        cached = CACHED // partitions
        self.config = config
        self.clock = clock = PartitionClock(TaskStateRow())
        """The time here, and the partition's own row."""
        self.assignments, self.defaults = LearnerAssignments(epoch), LearnedDefaults(epoch)
        self.resets_and_seeds = ResetsAndSeeds(epoch)
        self.rebuilds = RebuildState(epoch, config.digest)
        self.contexts = ContextCache(
            config, self.assignments, self.defaults, clock, epoch, load, cached
        )
        self.deduplicator = Deduplicator(epoch, load, cached, clock.arrived)
        self.open_predictions = OpenPredictions(epoch, clock.arrived)
        self.budget = ExpiryBudget()
        self.control_tables: Sequence[LatestBySubject[Any]] = (
            self.assignments, self.defaults, self.contexts.downweights, self.resets_and_seeds,
            self.rebuilds,
        )  # fmt: skip

    @property
    def row(self) -> TaskStateRow:
        """The partition's own row."""
        return self.clock.row

    @property
    def touched_bytes(self) -> int:
        """Upper bound of the bytes of the rows that events changed since the last commit."""
        return (
            self.contexts.touched_bytes
            + self.deduplicator.touched_bytes
            + self.open_predictions.touched_bytes
        )

    @property
    def control_bytes(self) -> int:
        """Bytes of the rows that control records changed since the last commit."""
        return sum(table.touched_bytes for table in self.control_tables)

    def restore_own_row(self, raw: bytes) -> None:
        """Restore the partition's own row."""
        self.clock.restore(decode_partition(raw))
        if self.clock.set_by_records:  # rows restored before were judged by their event times
            self.recompute_ages()

    def restore(self, key: bytes, raw: bytes) -> None:
        """Restore one row, which is not the partition's own and not a deleted one."""
        if key.startswith(START):
            self.open_predictions.restore(key, raw)
        elif key.startswith(SPOOL):
            self.deduplicator.restore(key, raw)
        elif key.startswith(CONTEXT):
            self.contexts.restore(key, raw)
        elif key.startswith(CONTROL):
            self.assignments.restore(key, raw)
            self.resets_and_seeds.restore(key, raw)
            self.contexts.downweights.restore(key, raw)
            self.rebuilds.restore(key, raw)
        elif key.startswith((DEFAULT, EVIDENCE)):
            self.defaults.restore(key, raw)

    def recompute_ages(self) -> None:
        """Recompute all ages: from now on clock records set the time, not events."""
        self.contexts.recompute_ages()
        self.deduplicator.recompute_ages()
        self.open_predictions.recompute_ages()
