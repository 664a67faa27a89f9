"""Turns record batches into the lines that a sink stores: the sink agents without their I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from processing.control.messages import read_control
from processing.records.batch import Headers, RecordBatch
from processing.records.dead_letters import DeadLetter, dead_letter
from processing.records.decode import Rejection, decode_record, decode_records, split_frame
from processing.records.dlq_limits import Slice
from processing.records.headers import is_for_group
from topics.control.messages import Purge, is_control
from topics.kafka.limits import WholeBytes

Unpack = Callable[
    [Sequence[bytes | None], Sequence[int]], Sequence[tuple[Sequence[bytes], Sequence[Rejection]]]
]
"""Takes record values and their timestamps (Unix ms); returns, for each, the JSON to be stored and
what is rejected."""
Encode = Callable[[Sequence[bytes]], Sequence[bytes]]
"""Takes that JSON; returns the sink's lines. Raises `ValueError` where one cannot be stored."""
Touched = Callable[[Sequence[bytes]], list[bytes]]
"""Takes a sink's lines; returns those of its outbox."""


class PartitionPurge(NamedTuple):
    """A purge that a sink has come to, and where."""

    purge: Purge
    partition: int
    offset: int


@dataclass
class SinkBatch:
    """The lines of some batches in order, each with its JSON, batch and position."""

    lines: list[bytes] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    sources: list[tuple[RecordBatch, int]] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    purges: list[PartitionPurge] = field(default_factory=list)
    """Purges that take effect after these lines."""
    _touched: list[bytes] | None = None

    def touched(self, by: Touched) -> list[bytes]:
        """Return what `by` gives for the lines, computed once."""
        if self._touched is None:
            self._touched = by(self.lines)
        return self._touched

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
        self._touched = None
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
        rest = self._piece(begun, end)
        rest.purges = self.purges
        yield slices, rest

    def _piece(self, begin: int, end: int) -> SinkBatch:
        lines, records = self.lines[begin:end], self.records[begin:end]
        return SinkBatch(lines, records, self.sources[begin:end])

    def refuse(self, index: int, reason: str, group: str) -> DeadLetter:
        """Return the dead letter of a line that the database rejected."""
        batch, position = self.sources[index]
        return dead_letter(batch, position, Rejection(self.records[index], reason, None), group)


def until_purge(
    batch: RecordBatch, run: range, operators_key: bytes | None
) -> tuple[range, PartitionPurge | None]:
    """Return a run up to its first purge, which ends it, and that purge; None without one."""
    if batch.headers:
        for position in run:
            headers = batch.headers.get(batch.offsets[position])
            if headers and (purge := purge_at(batch, position, headers, operators_key)):
                placed = PartitionPurge(purge, batch.partition, batch.offsets[position])
                return range(run.start, position + 1), placed
    return run, None


def purge_at(
    batch: RecordBatch, position: int, headers: Headers, operators_key: bytes | None
) -> Purge | None:
    """Return the purge in a record; None if it is no valid one.

    The threshold worker makes a dead letter of an invalid one.
    """
    value = batch.values[position] or b""
    if not is_control(headers) or b'"purge"' not in value:
        return None
    try:
        control = read_control(value, headers, batch.timestamps[position], operators_key)
    except ValueError:
        return None
    return control if isinstance(control, Purge) else None


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
