"""What one partition has applied since its last checkpoint: several fetches.

A row costs as much as ten events, and what one fetch touches the next one mostly touches again.
Rows may be written late because thresholds are published to Redis first. While catching up, even
thresholds are not published per fetch: newer ones replace them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agents.dlq_limit_guard import DlqLimitGuard
from agents.environment import Tuning
from agents.health.metrics import WorkerCounts
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter
from processing.records.dlq_limits import BatchExtent, RefusalState, Slice, extent
from topics.schema.json_schema import PublishedThreshold


class UnpublishedAnswers(NamedTuple):
    """Thresholds to be published ahead of their rows, and the records they follow from."""

    thresholds: Sequence[PublishedThreshold]
    applied: tuple[BatchExtent, float] | None
    """The records, and when the first of them was begun; None: they were counted already."""


class CheckpointBuffer:
    """The records of one checkpoint: those that may still be refused, and how many others.

    Made when the first record is about to be applied; replaced after `committed`.
    """

    def __init__(self, guard: DlqLimitGuard, tuning: Tuning, begun_s: float) -> None:
        """`begun_s`: by the clock that `remaining_s` is given."""
        self._guard, self._tuning, self._begun_s = guard, tuning, begun_s
        self._parts: list[Slice] = []
        self._checked: dict[int, RefusalState] = {}
        self._released = BatchExtent()
        self._unpublished_since: float | None = None

    def add(self, part: Slice, begun: float) -> None:
        """Add records that were applied. `begun`: `metrics.started()` before that."""
        if self._unpublished_since is None:
            self._unpublished_since = begun
        self._parts.append(part)

    def remaining_s(self, now_s: float, *, backlog: bool) -> float:
        """Return for how many seconds the checkpoint may wait for more."""
        tuning = self._tuning
        longest = tuning.backlog_checkpoint_s if backlog else tuning.checkpoint_s
        return max(0.0, min(self._begun_s + longest - now_s, tuning.idle_s))

    def release_records(self) -> None:
        """Drop the records and keep their number: none of those applied so far is refused."""
        self.check(())
        self._released, self._parts = extent(self._parts, self._released), []

    def check(self, letters: Sequence[DeadLetter]) -> None:
        """Raise `RefusalLimitExceeded` where too much is refused, `letters` being all of it."""
        self._checked = self._guard.check(self._parts, letters, self._checked)

    def take_unpublished(self) -> tuple[BatchExtent, float] | None:
        """Return what was released, and when the first record not yet published was begun."""
        since, self._unpublished_since = self._unpublished_since, None
        return None if since is None else (self._released, since)

    def committed(self, counts: WorkerCounts, events: int) -> None:
        """Count the checkpoint, which held so many events: all of it has been committed."""
        self._guard.committed(self._checked)
        self._released, self._parts = extent(self._parts, self._released), []
        if (applied := self.take_unpublished()) is not None:
            counts.observe_effect(*applied)
        counts.count_batch(self._released, events)


def is_backlog(batch: RecordBatch) -> bool:
    """Return whether the log has at least as much again as this fetch of it."""
    return batch.lag >= max(1, len(batch))
