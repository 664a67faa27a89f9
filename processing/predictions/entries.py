"""The models of a worker, and which of them are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headstart.prediction.shared.fleet_model import FleetModel
from topics.models.records import NO_RESET

MOST_LOADED: Final = 64
"""Models in memory; see docs/explanation/architecture.md for what one takes."""
NEVER: Final = -2
"""Instead of an offset: nothing was written."""


@dataclass(slots=True, eq=False)
class ModelEntry:
    """The model of one key, and how much of it was written where.

    Offsets are those of the last record that is in a state; -1: none of this log epoch.
    """

    key: bytes
    partition: int
    offset: int = -1
    reset: tuple[int, int] = NO_RESET
    """(epoch, offset) of the last reset."""
    model: FleetModel | None = None
    """None: it is not in memory; its file has all of it."""
    filed: int = NEVER
    """Offset of the state in the worker's directory."""
    stored: int = NEVER
    """Offset of the state in `headstart.models`."""
    unfiled_from: int | None = None
    """The first record that the file lacks."""
    unstored_from: int | None = None
    """The first record that `headstart.models` lacks."""
    unstored_events: int = 0
    size: int = 0
    """Bytes of the state when it was last written."""
    evicted: int | None = None
    """Executors that the model had evicted when that was last looked at."""
    rewrite: bool = False
    """`headstart.models` must get the state at once, also if it has it."""

    @property
    def is_stored(self) -> bool:
        """Whether `headstart.models` has the state."""
        return self.stored == self.offset and not self.rewrite

    def changed(self, offset: int, events: int) -> None:
        """Note that events of a record were applied."""
        self.offset = offset
        self.unstored_events += events
        if self.unfiled_from is None:
            self.unfiled_from = offset
        if self.unstored_from is None:
            self.unstored_from = offset

    def newly_evicted(self) -> int:
        """Return how many executors the model has evicted since the last call."""
        if self.model is None:
            return 0
        total = self.model.covered.evicted
        before = total if self.evicted is None else min(self.evicted, total)
        self.evicted = total
        return total - before

    def note_filed(self) -> None:
        """Note that the file has the state."""
        self.filed, self.unfiled_from = self.offset, None

    def note_stored(self) -> None:
        """Note that `headstart.models` has the state."""
        self.stored, self.unstored_from = self.offset, None
        self.unstored_events, self.rewrite = 0, False


class LoadedModels:
    """The entries whose models are in memory, the one used longest ago first."""

    def __init__(self, most: int = MOST_LOADED) -> None:
        self._most = most
        self._entries: dict[ModelEntry, None] = {}

    def used(self, entry: ModelEntry) -> None:
        """Note that an entry's model was used."""
        self._entries.pop(entry, None)
        self._entries[entry] = None

    def forget(self, partition: int) -> None:
        """Drop the entries of a partition that is not owned any more."""
        for entry in [each for each in self._entries if each.partition == partition]:
            del self._entries[entry]

    @property
    def full(self) -> bool:
        """Whether more models are in memory than should be."""
        return len(self._entries) > self._most

    def excess(self) -> Iterator[ModelEntry]:
        """Yield entries whose models have to leave memory; each is dropped after the caller
        continues, by when its file has the state."""
        while self.full:
            entry = next(iter(self._entries))
            yield entry
            del self._entries[entry]
            entry.model = None
