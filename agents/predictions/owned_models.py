"""One partition under one assignment: its models, where their states are, and when they are due."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from faust.types import TP

from agents.predictions.model_files import ModelFiles
from headstart.keys import key_names
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.state_format import NewerState, UnknownState
from processing.predictions.entries import ModelEntry
from processing.predictions.partition_models import PartitionModels
from topics.epoch import Epoch
from topics.models.records import FORMAT, StoredModel, encode_marker

log = structlog.get_logger()

BYTES_PER_EVENT: Final = 200
"""Of writing states, at most: a state of a megabyte is written every 5,000 events, or if it is
`STORE_LATEST_S` old."""


class ModelTooNew(RuntimeError):
    """A newer worker has written the state of a model."""

    def __init__(self, tenant: str, workflow_type: str, error: NewerState) -> None:
        super().__init__(
            f"the model of {workflow_type} of tenant {tenant} was written by a newer worker: it "
            f"has version {error.found}, known is {error.known}; upgrade this worker"
        )


@dataclass(frozen=True)
class StoreTuning:
    """How soon a changed state is written, in seconds; a log in memory has other numbers."""

    file_s: float = 5.0
    """To the worker's directory, where that is what outlives the broker."""
    idle_s: float = 1.0
    """The same if no more records have come for so long."""
    store_s: float = 30.0
    """To `headstart.models`, at least so long after it changed."""
    store_latest_s: float = 300.0
    """And after so long in any case: a restart applies what was not written again."""
    marker_s: float = 5.0
    """A marker without states at least so long after the one before."""

    @classmethod
    def of(cls, epoch: Epoch) -> StoreTuning:
        """Return those for a log: one in memory should not be filled with states."""
        return cls(store_latest_s=3_600.0) if epoch.volatile else cls()


@dataclass(eq=False)
class OwnedModels:
    """A partition's models with the agent's own notes."""

    tp: TP
    models: PartitionModels
    end: int
    """The end of `headstart.models` after our own last record."""
    marked: int = 0
    """The offset of the last marker in `headstart.models`: where a restart begins without files."""
    file_marked: int = 0
    """The same of the marker of the files."""
    changed_s: dict[bytes, float] = field(default_factory=dict)
    """When an entry changed that `headstart.models` lacks since; the same clock as below."""
    applied_s: float = 0.0
    filed_s: float = 0.0
    marked_s: float = 0.0
    marker_due: bool = False
    """Dead letters were sent: a marker keeps a restart from sending them again."""
    letters_unsent: bool = False
    """A step was broken off before its dead letters were sent. Nothing more is written: a restart
    applies it again, and sends them."""

    def note(self, changed: Iterable[bytes], now_s: float) -> None:
        """Note which entries a step changed."""
        self.applied_s = now_s
        for key in changed:
            self.changed_s.setdefault(key, now_s)

    def due(self, now_s: float, tuning: StoreTuning) -> list[ModelEntry]:
        """Return the entries whose state is to be written to `headstart.models` now."""
        found = []
        for entry in self.models.entries.values():
            if entry.is_stored:
                continue
            age_s = now_s - self.changed_s.setdefault(entry.key, now_s)
            enough = entry.unstored_events * BYTES_PER_EVENT >= entry.size
            if (
                entry.rewrite
                or age_s >= tuning.store_latest_s
                or (enough and age_s >= tuning.store_s)
            ):
                found.append(entry)
        return found

    def unfiled(self) -> list[ModelEntry]:
        """Return the entries that their files lack."""
        return [each for each in self.models.entries.values() if each.unfiled_from is not None]

    def stored_to(self, written: Iterable[ModelEntry] = ()) -> int:
        """Return the offset below which `headstart.models` has everything, with states that are
        about to be `written`."""
        now = set(written)
        missing = [e.unstored_from for e in self.models.entries.values() if e not in now]
        return min([self.models.reached, *(each for each in missing if each is not None)])

    def marker_late(self, now_s: float, tuning: StoreTuning) -> bool:
        """Return whether a marker is to be written without states.

        Records that change no model are read too: without a marker a restart would begin before
        them, and report them as lost if retention has deleted them since.
        """
        if self.marker_due:
            return True
        return now_s - self.marked_s >= tuning.marker_s and self.stored_to() > self.marked

    def filed_to(self) -> int:
        """Return the offset below which files have everything."""
        missing = [each.unfiled_from for each in self.unfiled()]
        return min([self.models.reached, *(each for each in missing if each is not None)])

    def marker(self, epoch: int, written: Iterable[ModelEntry] = (), *, files: bool) -> bytes:
        """Return the marker of `headstart.models` with states that are about to be `written`, or
        that of the files."""
        offsets, now = {}, set(written)
        for entry in self.models.entries.values():
            offset = entry.filed if files else entry.offset if entry in now else entry.stored
            if offset >= 0:
                offsets[entry.key] = offset
        reached = self.filed_to() if files else self.stored_to(now)
        return encode_marker(epoch, reached, offsets)

    def note_marked(self, reached: int, now_s: float) -> None:
        """Note that a marker of this offset is in `headstart.models`."""
        self.marked, self.marked_s, self.marker_due = reached, now_s, False


class ModelStates:
    """States of entries as bytes, and back, by way of the files."""

    def __init__(self, files: ModelFiles, epoch: int) -> None:
        self._files, self._epoch = files, epoch

    def state_of(self, entry: ModelEntry) -> bytes:
        """Return an entry's state, empty if nothing was learned.

        Raises `ModelFileDamaged`, `OSError`.
        """
        if entry.model is None:
            return self._read(entry)
        return entry.model.to_bytes() if entry.model.version else b""

    def load(self, entry: ModelEntry) -> FleetModel:
        """Return the model of an entry, a new one if its state is damaged.

        Raises `ModelTooNew`, `ModelFileDamaged`, `OSError`.
        """
        state = self._read(entry)
        if not state:
            return FleetModel()
        tenant, workflow_type = key_names(entry.key)
        try:
            return FleetModel.from_bytes(state)
        except NewerState as error:
            raise ModelTooNew(tenant, workflow_type, error) from error
        except UnknownState as error:  # to end would stop the learning of all tenants
            log.error(
                "model.state_damaged", tenant=tenant, workflow_type=workflow_type, error=str(error),
                fix="headstart predict reset, so that predict verify is equal again",
            )  # fmt: skip
            return FleetModel()

    def write_file(self, entry: ModelEntry) -> None:
        """Write an entry's state to its file, if the model is in memory. Raises `OSError`."""
        if entry.model is not None:
            state = self.state_of(entry)
            model = StoredModel(FORMAT, self._epoch, entry.offset, entry.reset, state)
            self._files.write(entry.partition, entry.key, model)
        entry.note_filed()

    def _read(self, entry: ModelEntry) -> bytes:
        return self._files.read(entry.partition, entry.key).state
