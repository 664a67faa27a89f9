"""Stops a worker that refuses too much, and keeps it stopped when it is started again.

The counts are kept in memory. When a limit is exceeded, they are written to the worker's directory
as they were before the step that is not committed: the next start meets the same limit at the same
record, instead of dead-lettering up to one more limit each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
import structlog
from faust.types import TP

from processing.records.dead_letters import DeadLetter
from processing.records.dlq_limits import (
    DlqLimits,
    RefusalLimitExceeded,
    RefusalState,
    Slice,
    examine,
)

FILE: Final = "refused.json"
log = structlog.get_logger()


class Stopped(msgspec.Struct, frozen=True):
    """The content of the file: the partitions' states in one log epoch."""

    epoch: int
    partitions: dict[int, RefusalState]


class DlqLimitGuard:
    """The limits of every partition of one worker."""

    def __init__(self, limits: DlqLimits, data: Path, epoch: int) -> None:
        """`data`: the worker's directory; `epoch`: the log epoch."""
        self._limits, self._file, self._epoch = limits, data / FILE, epoch
        self._states = self._read()

    def open(self, tp: TP, begin: int) -> None:
        """Start counting a partition at `begin`.

        Counts that were written to the file continue, unless another worker has processed records
        of the partition since.
        """
        left = self._states.get(tp.partition)
        if left is None or left.reached < begin:
            self._states[tp.partition] = RefusalState(begin)

    def restart(self, tp: TP, begin: int) -> None:
        """Start counting a partition at `begin`, where it was counted further: it is read again."""
        self._states[tp.partition] = RefusalState(begin)

    def check(
        self,
        parts: Sequence[Slice],
        letters: Sequence[DeadLetter],
        before: Mapping[int, RefusalState] = MappingProxyType({}),
    ) -> dict[int, RefusalState]:
        """Return the states after a step of which `letters` are refused, for `committed`.

        `before`: the states after parts of the same step that were checked already. May be called
        again for the same parts, with more letters. Raises `RefusalLimitExceeded`.
        """
        states = dict(before)
        try:
            for part in parts:
                partition = part.batch.partition
                state = states.get(partition, self._states[partition])
                states[partition] = examine(state, self._limits, part, letters)
        except RefusalLimitExceeded:
            self._write()
            raise
        return states

    def committed(self, states: Mapping[int, RefusalState]) -> None:
        """Take over the states of a step that took effect."""
        self._states.update(states)

    def _read(self) -> dict[int, RefusalState]:
        try:
            stopped = msgspec.json.decode(self._file.read_bytes(), type=Stopped)
        except FileNotFoundError:
            return {}
        except msgspec.MsgspecError as error:
            log.warning("dlq_state.unreadable", file=str(self._file), error=str(error))
            return {}
        return dict(stopped.partitions) if stopped.epoch == self._epoch else {}

    def _write(self) -> None:
        written = self._file.with_suffix(".new")
        written.write_bytes(msgspec.json.encode(Stopped(self._epoch, self._states)))
        written.replace(self._file)
