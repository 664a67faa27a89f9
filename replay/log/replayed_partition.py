"""Applies the log of a partition as the worker does, rebuilds included. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from kernels.loader import load_in_background
from processing.config import LearningConfig
from processing.rebuild import TableRebuild
from processing.records.batch import RecordBatch
from processing.task import Checkpoint, PartitionTask
from replay.log.live_table import Rows
from topics.control.messages import Rebuild

LOADS_KERNELS: Final = 10_000
"""Records applied by this process, of all partitions, from which on the compiled kernels are loaded
in the background. That takes a second, or 20 where they have to be compiled first; until then
records are applied without them."""


@dataclass(frozen=True)
class EpochPartition:
    """A partition of a log epoch, of so many partitions."""

    partition: int
    partitions: int
    epoch: int


class ReplayedPartition:
    """The core of one partition and its table, kept in memory.

    `skip_rebuild`: rebuilds in the log replace nothing, and only their choices hold, for learning
    again by another policy.
    """

    _applied: ClassVar[int] = 0
    """Records that this process has applied, of all partitions."""

    def __init__(
        self,
        place: EpochPartition,
        rules: LearningConfig,
        rows: Rows,
        note: Callable[[Checkpoint], None] = lambda _commit: None,
        *,
        skip_rebuild: bool = False,
        reference: bool = False,
    ) -> None:
        """`rows`: what to begin with. `note` is called with every commit. `reference`: the kernels
        are not loaded, every event is applied by the Python code alone. Raises `RowAhead`."""
        self._reference = reference
        self.table = dict(rows)
        self._place, self._rules, self._note = place, rules, note
        self._pass_over = skip_rebuild
        self._core = self._new_core()

    @property
    def applied_offset(self) -> int:
        """The last offset applied; -1 where nothing is."""
        return self._core.applied_offset

    @property
    def open_starts(self) -> int:
        """How many starts have no completion yet, and have not expired."""
        return len(self._core.state.open_predictions.values())

    def apply(self, batch: RecordBatch) -> Iterator[TableRebuild]:
        """Apply a batch whole. Yields each rebuild that has to be fed before it goes on."""
        if not self._reference:
            ReplayedPartition._applied += len(batch)
            if ReplayedPartition._applied >= LOADS_KERNELS:
                load_in_background()
        position = 0
        while True:
            if self._pass_over and self._core.pending_rebuild is not None:
                self._core.skip_rebuild()
                self._commit()
            elif self._core.pending_rebuild is not None:
                takeover = self._takeover(self._core.pending_rebuild)
                yield takeover
                self._take(takeover)
            if position >= len(batch):
                return
            position = self._core.apply(batch, position)
            self._commit()

    def _takeover(self, rebuild: Rebuild) -> TableRebuild:
        at = self._place
        return TableRebuild(
            rebuild, self._core.reached, at.partition, at.partitions, at.epoch, self._rules
        )

    def _take(self, takeover: TableRebuild) -> None:
        if takeover.refused is not None:
            self._core.skip_rebuild(takeover.refused)
            self._commit()
            return
        # Deleted rows stay as tombstones, as in the worker's table.
        self.table.update(list(takeover.replacing(list(self.table))))
        self._core = self._new_core()

    def _commit(self) -> None:
        commit = self._core.commit()
        self.table.update(commit.rows)
        self._note(commit)

    def _new_core(self) -> PartitionTask:
        at = self._place
        core = PartitionTask(at.partition, at.partitions, at.epoch, self._rules, self.table.get)
        core.restore(list(self.table.items()))
        return core
