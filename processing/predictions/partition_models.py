"""The models of one partition of `headstart.decisions`: applies its records in order. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from headstart.events.frames import MAX_FRAME_BYTES, MAX_FRAME_EVENTS
from headstart.events.schema import MAX_EVENT_BYTES, MAX_IDENTIFIER
from headstart.keys import event_key
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.invalid_decision import InvalidDecision
from processing.predictions.entries import LoadedModels, ModelEntry
from processing.records.batch import Headers, RecordBatch
from processing.records.dead_letters import DeadLetter, dead_letter
from processing.records.decode import MALFORMED, Rejection, split_frame
from processing.records.headers import is_for_group
from processing.records.partitioner import partition_for
from topics.catalogue import PREDICTIONS_GROUP
from topics.control.messages import SIGNATURE_HEADER, signature
from topics.kafka.limits import WholeBytes
from topics.models.resets import RESET

STEP_RECORDS: Final = 64
"""Records that are applied in one step, at most."""
STEP_EVENTS: Final = 1_000
"""Events after which a step ends; a record, which may have as many, is applied as a whole."""


@dataclass
class AppliedStep:
    """What one step did: up to which position of its batch, and what follows."""

    end: int = 0
    events: int = 0
    changed: dict[bytes, ModelEntry] = field(default_factory=dict)
    dead_letters: list[DeadLetter] = field(default_factory=list)


class PartitionModels:
    """One partition's models, each a function of the log up to the offset that it has."""

    def __init__(
        self,
        partition: int,
        partitions: int,
        epoch: int,
        load: Callable[[ModelEntry], FleetModel],
        loaded: LoadedModels,
        operators_key: bytes | None = None,
    ) -> None:
        """`epoch`: the log epoch. `load`: returns the model of an entry that is not in memory.

        `operators_key`: with it, resets must be signed.
        """
        self.partition = partition
        self.entries: dict[bytes, ModelEntry] = {}
        self.reached = 0
        """Offset of the next record."""
        self._partitions, self._epoch = partitions, epoch
        self._operators_key = operators_key
        self._load, self._loaded = load, loaded

    def apply(self, batch: RecordBatch, begin: int) -> AppliedStep:
        """Apply records from position `begin` on, until there are enough for a step.

        A record that an entry's state has is not applied to it again.
        """
        step = AppliedStep(begin)
        most = min(len(batch), begin + STEP_RECORDS)
        seen = 0
        while step.end < most and (
            step.end == begin or (seen < STEP_EVENTS and not self._loaded.full)
        ):
            seen += self._apply_record(batch, step.end, step)
            step.end += 1
        self.reached = batch.end if step.end == len(batch) else batch.offsets[step.end]
        return step

    def model(self, entry: ModelEntry) -> FleetModel:
        """Return an entry's model, loaded if it was not in memory."""
        if entry.model is None:
            entry.model = self._load(entry)
        self._loaded.used(entry)
        return entry.model

    def _apply_record(self, batch: RecordBatch, position: int, step: AppliedStep) -> int:
        """Apply one record; return how many events it has."""
        offset = batch.offsets[position]
        headers = batch.headers.get(offset, ())
        if not is_for_group(headers, PREDICTIONS_GROUP):
            return 0
        applied: dict[bytes, int] = {}
        framed = (batch.values[position] or b"").lstrip()[:1] == b"["
        events_of_record = _events_of(batch, position, step)
        for place, raw in enumerate(events_of_record):
            try:
                key, event = self._read(raw)
                if (
                    key in self.entries
                    and key not in applied
                    and (self.entries[key].offset >= offset)
                ):
                    continue
                applied[key] = applied.get(key, 0) + self._apply_event(
                    key, event, raw, offset, headers
                )
            except InvalidDecision as error:
                rejection = Rejection(raw, str(error), place if framed else None)
                step.dead_letters.append(dead_letter(batch, position, rejection, PREDICTIONS_GROUP))
        for key, events in applied.items():
            if events:
                entry = self.entries[key]
                entry.changed(offset, events)
                step.changed[key] = entry
            step.events += events
        return len(events_of_record)

    def _read(self, raw: bytes) -> tuple[bytes, dict[str, Any]]:
        """Return an event with its key. Raises `InvalidDecision`."""
        if len(raw) > MAX_EVENT_BYTES:
            raise InvalidDecision(f"it has {len(raw)} bytes, the limit is {MAX_EVENT_BYTES}")
        try:
            event = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise InvalidDecision(f"not JSON: {error}") from error
        if not isinstance(event, dict):
            raise InvalidDecision("an event is a JSON object")
        tenant, workflow_type = (_identifier(event, name) for name in ("tenant", "workflow_type"))
        owner = partition_for(tenant, workflow_type, self._partitions)
        if owner != self.partition:
            raise InvalidDecision(
                f"its key belongs to partition {owner}: place records by murmur2 of "
                "tenant 0x1f workflow_type"
            )
        return event_key(tenant, workflow_type), event

    def _apply_event(
        self, key: bytes, event: dict[str, Any], raw: bytes, offset: int, headers: Headers
    ) -> int:
        """Apply an event; return 1 if it changed the model. Raises `InvalidDecision`."""
        if event.get("event_type") == RESET:
            self._require_signed(raw, headers)
            entry = self._entry(key)
            entry.model = FleetModel()
            entry.reset, entry.rewrite = (self._epoch, offset), True  # what was learned is deleted
            self._loaded.used(entry)
            return 1
        if key in self.entries:
            return int(self.model(self.entries[key]).apply(event))
        model = FleetModel()
        if not model.apply(event):  # nor is there an entry where it is refused
            return 0
        entry = self._entry(key)
        entry.model = model
        self._loaded.used(entry)
        return 1

    def _entry(self, key: bytes) -> ModelEntry:
        if key not in self.entries:
            self.entries[key] = ModelEntry(key, self.partition)
        return self.entries[key]

    def _require_signed(self, raw: bytes, headers: Headers) -> None:
        if self._operators_key is None:
            return
        signed = dict(headers).get(SIGNATURE_HEADER)
        if signed is None:
            raise InvalidDecision("the reset is not signed, and HEADSTART_OPERATORS_KEY is set")
        if not hmac.compare_digest(signed, signature(raw, self._operators_key)):
            raise InvalidDecision("the reset's signature is not of HEADSTART_OPERATORS_KEY")


def _events_of(batch: RecordBatch, position: int, step: AppliedStep) -> list[bytes]:
    """Return the bytes of each event of a record; none if it is refused as a whole."""
    value = batch.values[position]
    reason = ""
    if not value:
        value, reason = b"", "the record has no value"
    elif type(value) is WholeBytes:
        reason = value.reason
    elif value.lstrip()[:1] != b"[":
        return [value]
    elif len(value) > MAX_FRAME_BYTES:
        reason = f"the frame has {len(value)} bytes, the limit is {MAX_FRAME_BYTES}"
    else:
        try:
            parts = split_frame(value)
        except MALFORMED as error:
            reason = f"not JSON: {error}"
        else:
            if len(parts) <= MAX_FRAME_EVENTS:
                return parts
            reason = f"the frame has {len(parts)} events, the limit is {MAX_FRAME_EVENTS}"
    rejection = Rejection(bytes(value), reason, None)
    step.dead_letters.append(dead_letter(batch, position, rejection, PREDICTIONS_GROUP))
    return []


def _identifier(event: dict[str, Any], name: str) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_IDENTIFIER:
        raise InvalidDecision(f"{name}: must be a string of 1 to {MAX_IDENTIFIER} characters")
    if "\0" in value or "\x1f" in value:
        raise InvalidDecision(f"{name}: holds characters that its format does not allow")
    return value
