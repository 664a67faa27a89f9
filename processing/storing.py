"""The sink agents without their I/O: record batches to the lines that a sink stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from processing.addressing import meant_for
from processing.dead_letters import DeadLetter, dead_letter
from processing.decode import Refusal, decode_record, split_frame
from processing.records import RecordBatch

Unpack = Callable[[bytes | None, int], tuple[Sequence[bytes], Sequence[Refusal]]]
"""(record value, record timestamp in Unix ms) to the JSON of what is to be stored of it, and what
is refused."""
Encode = Callable[[bytes], bytes]
"""That JSON to a line of the sink's. Raises `ValueError` with the reason to refuse it."""


@dataclass
class Unpacked:
    """The lines of some batches in order, each with the JSON and the place that it came from."""

    lines: list[bytes] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    sources: list[tuple[RecordBatch, int]] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    def add(
        self, batch: RecordBatch, position: int, unpack: Unpack, encode: Encode, group: str
    ) -> None:
        """Unpack and encode the record at `position` of `batch`, if it is for `group`."""
        if batch.headers and not meant_for(batch.headers.get(batch.offsets[position]), group):
            return
        records, refused = unpack(batch.values[position], batch.timestamps[position])
        for record in records:
            try:
                self.lines.append(encode(record))
            except ValueError as error:
                refusal = Refusal(record, str(error), None)
                self.dead_letters.append(dead_letter(batch, position, refusal, group))
            else:
                self.records.append(record)
                self.sources.append((batch, position))
        for refusal in refused:
            self.dead_letters.append(dead_letter(batch, position, refusal, group))

    def refuse(self, index: int, reason: str, group: str) -> DeadLetter:
        """Return the dead letter of a line that the database would not take."""
        batch, position = self.sources[index]
        return dead_letter(batch, position, Refusal(self.records[index], reason, None), group)


def unpack_events(
    value: bytes | None, timestamp_ms: int
) -> tuple[Sequence[bytes], Sequence[Refusal]]:
    """Return the events of a record of `headstart.events` as they came, unknown fields and all."""
    events, refused = decode_record(value, timestamp_ms)
    if not events or value is None:
        return (), refused
    if value.lstrip()[:1] != b"[":
        return (value,), refused
    places = {refusal.place for refusal in refused}
    return [raw for place, raw in enumerate(split_frame(value)) if place not in places], refused


def unpack_thresholds(
    value: bytes | None, _timestamp_ms: int
) -> tuple[Sequence[bytes], Sequence[Refusal]]:
    """Return the change in a record of `headstart.thresholds`; a tombstone holds none."""
    return (() if value is None else (value,)), ()
