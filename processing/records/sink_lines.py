"""Turns record batches into the lines that a sink stores: the sink agents without their I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter, dead_letter
from processing.records.decode import Rejection, decode_record, decode_records, split_frame
from processing.records.dlq_limits import Slice
from processing.records.headers import is_for_group
from topics.kafka.limits import WholeBytes

Unpack = Callable[
    [Sequence[bytes | None], Sequence[int]], Sequence[tuple[Sequence[bytes], Sequence[Rejection]]]
]
"""Takes record values and their timestamps (Unix ms); returns, for each, the JSON to be stored and
what is rejected."""
Encode = Callable[[Sequence[bytes]], Sequence[bytes]]
"""Takes that JSON; returns the sink's lines. Raises `ValueError` where one cannot be stored."""


@dataclass
class SinkBatch:
    """The lines of some batches in order, each with its JSON, batch and position."""

    lines: list[bytes] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    sources: list[tuple[RecordBatch, int]] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    def add(
        self, batch: RecordBatch, run: range, unpack: Unpack, encode: Encode, group: str
    ) -> None:
        """Unpack and encode the records at the positions of `run` that are for `group`."""
        positions = [
            position
            for position in run
            if not batch.headers or is_for_group(batch.headers.get(batch.offsets[position]), group)
        ]
        values, times = batch.values, batch.timestamps
        unpacked = unpack(
            [values[position] for position in positions],
            [times[position] for position in positions],
        )
        records, sources = list[bytes](), list[tuple[RecordBatch, int]]()
        for position, (found, refused) in zip(positions, unpacked, strict=True):
            records += found
            sources += [(batch, position)] * len(found)
            self.dead_letters += [dead_letter(batch, position, each, group) for each in refused]
        self._encode(records, sources, encode, group)

    def _encode(
        self,
        records: Sequence[bytes],
        sources: Sequence[tuple[RecordBatch, int]],
        encode: Encode,
        group: str,
    ) -> None:
        try:
            self.lines += encode(records)
        except ValueError as error:
            if len(records) == 1:
                ((batch, position),) = sources
                rejection = Rejection(records[0], str(error), None)
                self.dead_letters.append(dead_letter(batch, position, rejection, group))
                return
            for record, source in zip(records, sources, strict=True):
                self._encode([record], [source], encode, group)
        else:
            self.records += records
            self.sources += sources

    def pieces(self, parts: Sequence[Slice], most: int) -> Iterator[tuple[list[Slice], SinkBatch]]:
        """Yield the lines of slices again, about `most` at a time, without dead letters."""
        lines = Counter((id(batch), position) for batch, position in self.sources)
        slices, begun, end = list[Slice](), 0, 0
        for batch, first, last in parts:
            taken = first
            for position in range(first, last):
                end += lines[id(batch), position]
                if end - begun >= most:
                    yield [*slices, Slice(batch, taken, position + 1)], self._piece(begun, end)
                    slices, begun, taken = [], end, position + 1
            slices.append(Slice(batch, taken, last))
        yield slices, self._piece(begun, end)

    def _piece(self, begin: int, end: int) -> SinkBatch:
        lines, records = self.lines[begin:end], self.records[begin:end]
        return SinkBatch(lines, records, self.sources[begin:end])

    def refuse(self, index: int, reason: str, group: str) -> DeadLetter:
        """Return the dead letter of a line that the database rejected."""
        batch, position = self.sources[index]
        return dead_letter(batch, position, Rejection(self.records[index], reason, None), group)


def unpack_events(
    values: Sequence[bytes | None], timestamps_ms: Sequence[int]
) -> Sequence[tuple[Sequence[bytes], Sequence[Rejection]]]:
    """Return the events of records of `headstart.events` as they came, unknown fields included."""
    decoded = decode_records(values, timestamps_ms)
    return [
        _events_of(value, at, found is not None)
        for value, at, found in zip(values, timestamps_ms, decoded, strict=True)
    ]


def _events_of(
    value: bytes | None, timestamp_ms: int, sound: bool
) -> tuple[Sequence[bytes], Sequence[Rejection]]:
    refused: Sequence[Rejection] = ()
    if not sound:
        events, refused = decode_record(value, timestamp_ms)
        if not events:
            return (), refused
    assert value is not None, "a record without a value holds no event"
    if value.lstrip()[:1] != b"[":
        return (value,), refused
    rejected = {rejection.place for rejection in refused}
    return [raw for index, raw in enumerate(split_frame(value)) if index not in rejected], refused


def unpack_thresholds(
    values: Sequence[bytes | None], _timestamps_ms: Sequence[int]
) -> Sequence[tuple[Sequence[bytes], Sequence[Rejection]]]:
    """Return the change in each record of `headstart.thresholds`; a tombstone holds none."""
    return [_change_of(value) for value in values]


def _change_of(value: bytes | None) -> tuple[Sequence[bytes], Sequence[Rejection]]:
    if type(value) is WholeBytes:
        return (), (Rejection(bytes(value), value.reason, None),)
    return () if value is None else (value,), ()
