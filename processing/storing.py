"""The sink agents without their I/O: record batches to the records that a sink stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from headstart.events import InvalidEvent
from processing.addressing import meant_for
from processing.dead_letters import DeadLetter, dead_letter
from processing.decode import Refusal, decode_record, load_event, split_frame
from processing.records import RecordBatch
from topics.schema import Threshold

Record = Mapping[str, Any]
Unpack = Callable[[bytes | None, int], tuple[Sequence[Record], Sequence[Refusal]]]
"""(record value, record timestamp in Unix ms) to what is stored and what is refused of it."""


@dataclass
class Unpacked:
    """The records of some batches in order, each with the place that it came from."""

    records: list[Record] = field(default_factory=list)
    sources: list[tuple[RecordBatch, int]] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    def add(self, batch: RecordBatch, begin: int, unpack: Unpack, group: str) -> None:
        """Unpack the records of `batch` from offset `begin` on."""
        for position, offset in enumerate(batch.offsets):
            if offset < begin:
                continue
            if batch.headers and not meant_for(batch.headers.get(offset), group):
                continue
            records, refused = unpack(batch.values[position], batch.timestamps[position])
            self.records.extend(records)
            self.sources.extend([(batch, position)] * len(records))
            for refusal in refused:
                self.dead_letters.append(dead_letter(batch, position, refusal, group))

    def refuse(self, index: int, reason: str, group: str) -> DeadLetter:
        """Return the dead letter of a record that the database would not take."""
        batch, position = self.sources[index]
        raw = msgspec.json.encode(self.records[index])  # takes integers of any size
        return dead_letter(batch, position, Refusal(raw, reason, None), group)


def unpack_events(
    value: bytes | None, timestamp_ms: int
) -> tuple[Sequence[Record], Sequence[Refusal]]:
    """Return the events of a record of `headstart.events` as they came, unknown fields and all."""
    events, refused = decode_record(value, timestamp_ms)
    if not events or value is None:
        return (), refused
    try:
        loaded = orjson.loads(value)
    except orjson.JSONDecodeError:  # stricter than the decoder about huge numbers
        return _load_each(value, refused)
    if not isinstance(loaded, list):
        return (loaded,), refused
    places = {refusal.place for refusal in refused}
    return [event for place, event in enumerate(loaded) if place not in places], refused


def _load_each(
    value: bytes, refused: Sequence[Refusal]
) -> tuple[Sequence[Record], Sequence[Refusal]]:
    """Load the decoded events of a record one by one; refuse those that cannot be stored."""
    framed = value.lstrip()[:1] == b"["
    places = {refusal.place for refusal in refused}
    records, refusals = [], list(refused)
    for place, raw in enumerate(split_frame(value) if framed else [value]):
        if place not in places:
            try:
                records.append(load_event(raw))
            except InvalidEvent as error:
                refusals.append(Refusal(raw, str(error), place if framed else None))
    return records, refusals


_decode_threshold = msgspec.json.Decoder(Threshold).decode


def unpack_thresholds(
    value: bytes | None, _timestamp_ms: int
) -> tuple[Sequence[Record], Sequence[Refusal]]:
    """Return the change in a record of `headstart.thresholds`; a tombstone holds none."""
    if value is None:
        return (), ()
    try:
        return (msgspec.structs.asdict(_decode_threshold(value)),), ()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (), (Refusal(value, f"not a threshold: {error}", None),)
