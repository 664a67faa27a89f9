"""What the executors of one tenant and workflow type have learned together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headstart.prediction.bounded_tables import RecentTable
from headstart.prediction.decision_record import DecisionRecord
from headstart.prediction.model import CallModel
from headstart.prediction.shared.covered_sequences import CoveredSequences
from headstart.prediction.shared.decision_events import (
    CONSTANT,
    EmittedDecision,
    EmittedValue,
    read_event,
)
from headstart.prediction.shared.invalid_decision import InvalidDecision
from headstart.prediction.shared.snapshot import served_snapshot
from headstart.prediction.shared.written_values import WrittenValues
from headstart.prediction.state_format import (
    model_parts,
    packed,
    read_model,
    read_table,
    table_parts,
    tuple_of,
    unpacked,
)

VERSION: Final = 1
_MAGIC: Final = b"headstart-fleet-model "
_MOST_CONSTANTS, _CONSTANTS_SIZE = 6_000, 160_000  # hashes with writers, bytes of texts
_MOST_SKELETONS, _SKELETONS_SIZE = 600, 160_000
_MOST_CALLS, _LARGEST_CALL = 3_000, 16  # whole calls, leaf records of one


class FleetModel:
    """A function of the events that were applied, in their order, to the bit.

    Applying takes about as long as an executor takes to learn. Every table is bounded.
    """

    def __init__(self) -> None:
        self.version = 0
        """Events applied."""
        self.check: int | None = None
        """Tells apart executors with another `hash_key`; None before the first decision."""
        self.model = CallModel()
        self.covered = CoveredSequences()
        self.constants = WrittenValues(_MOST_CONSTANTS, _CONSTANTS_SIZE)
        self.skeletons = WrittenValues(_MOST_SKELETONS, _SKELETONS_SIZE)
        self.calls: RecentTable[tuple[int, ...]] = RecentTable(_MOST_CALLS)
        """Whole calls by their hash, which is keyed by the user: skeleton, constant of each leaf
        record."""

    def apply(self, event: Mapping[str, object]) -> bool:
        """Learn a decoded event of the topic of decisions.

        Returns False if it changes nothing: a repeat, or a value that less than three writers
        wrote. Raises `InvalidDecision`, before anything has changed, if a field is missing or out
        of range, or the event was made with another `hash_key`.
        """
        read = read_event(event)
        if self.check is not None and read.check != self.check:
            raise InvalidDecision(
                "this event was made with another hash_key than what is learned, or for another "
                "tenant or workflow type; give all executors of the tenant one HEADSTART_HASH_KEY, "
                "and run `headstart predict reset` if it changed"
            )
        changed = self._learn(read) if isinstance(read, EmittedDecision) else self._add(read)
        self.version += changed
        return changed

    def to_bytes(self) -> bytes:
        """Return the whole state, compressed."""
        state = {
            "events": self.version,
            "check": self.check,
            **model_parts(self.model),
            "covered": self.covered.parts(),
            "constants": self.constants.parts(),
            "skeletons": self.skeletons.parts(),
            "calls": table_parts(self.calls),
        }
        return packed(_MAGIC, VERSION, state)

    @classmethod
    def from_bytes(cls, data: bytes) -> FleetModel:
        """Return a model that goes on, to the bit, as the one of `to_bytes()` does.

        Raises `UnknownState` for damage, and for a state of a newer version.
        """
        return unpacked(data, _MAGIC, VERSION, cls._read)

    def snapshot(self, limit: int = 256_000) -> bytes:
        """Return what executors load, in at most `limit` bytes."""
        return served_snapshot(self, limit)

    @classmethod
    def _read(cls, state: dict[str, Any]) -> FleetModel:
        fleet = cls()
        fleet.version, fleet.check = state["events"], state["check"]
        fleet.model = read_model(state)
        fleet.covered.read(state["covered"])
        fleet.constants.read(state["constants"])
        fleet.skeletons.read(state["skeletons"])
        read_table(fleet.calls, state["calls"], tuple_of)
        return fleet

    def _learn(self, event: EmittedDecision) -> bool:
        if self.covered.covers(event.executor, event.sequence):
            return False
        self.check = event.check
        self.covered.cover(event.executor, event.sequence)
        self.model.learn(event.record)
        for call in event.record.calls:
            self.skeletons.write(call.skeleton, event.writer)
            for constant in dict.fromkeys([leaf.constant for leaf in call.leaves]):
                if constant:
                    self.constants.write(constant, event.writer)
        self._keep_call(event.record)
        return True

    def _keep_call(self, record: DecisionRecord) -> None:
        if not record.memory or not record.calls:
            return
        first = record.calls[0]
        constants = [leaf.constant for leaf in first.leaves]
        if all(constants) and len(constants) <= _LARGEST_CALL:
            self.calls.set(record.followed, (first.skeleton, *constants))

    def _add(self, event: EmittedValue) -> bool:
        values = self.constants if event.kind == CONSTANT else self.skeletons
        return values.add(event.identity, event.text)
