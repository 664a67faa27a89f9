"""Where predictions come from: one interface over broker, archive, exports and files.

A history has units that share nothing (partitions of the log), so they may be read side by side.
Reading never commits an offset and never writes to a topic. Here live the interface and what all
histories of records share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from headstart.keys import DEFAULT_LEVELS
from processing.records.batch import RecordBatch
from replay.engine.engine import BacktestEngine
from replay.engine.join import Notes, PredictionJoiner
from replay.predictions.assumptions import Assumed
from replay.predictions.unjoined import Filter
from replay.predictions.what_if import PayoffScales

Progress = Callable[[float], None]
"""Is told which share of a unit was read."""


class NothingThere(LookupError):
    """The history holds nothing in the range; the message says where it looked, and what to do."""


@dataclass(frozen=True)
class TimeRange:
    """Which part of a history: Unix ms of the record's own timestamp; offsets by partition.

    Ends are exclusive; None: from the beginning, to the end.
    """

    since: int | None = None
    until: int | None = None
    begin: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)

    def holds(self, at: int | None) -> bool:
        """Return whether a time is within; what has none is, where no time is asked for."""
        if at is None:
            return self.since is None and self.until is None
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@dataclass(frozen=True)
class ReadOptions:
    """How a history is read: which part, which predictions of it, by which levels.

    `whole`: what retention takes while it is read is an error, not only a warning.
    """

    levels: Sequence[str] = DEFAULT_LEVELS
    range: TimeRange = field(default_factory=TimeRange)
    chosen: Filter = field(default_factory=Filter)
    scales: PayoffScales = field(default_factory=PayoffScales)
    assumed: Assumed = field(default_factory=Assumed)
    whole: bool = False


class PredictionSource(Protocol):
    """Predictions in the order in which they came, by unit. It can be sent to another process."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def live(self) -> bool:
        """Whether it says what executors really started."""
        ...

    @property
    def reading(self) -> ReadOptions:
        """How it is read."""
        ...

    def units(self) -> Sequence[int]:
        """Return the units, those with most to read first. Raises `NothingThere`, and what opening
        it raises."""
        ...

    def read(self, unit: int, judge: BacktestEngine, notes: Notes, progress: Progress) -> None:
        """Let a judge have all predictions of a unit, in order."""
        ...


@runtime_checkable
class RecordSource(PredictionSource, Protocol):
    """A history of records of `headstart.events`, as the agents get them."""

    def log(self) -> tuple[int, int]:
        """Return the log's epoch and how many partitions it has."""
        ...

    def batches(self, unit: int, notes: Notes) -> Iterator[tuple[RecordBatch, float]]:
        """Yield a partition's records in order, and which share of it was read by then."""
        ...


def largest_first(sizes: Mapping[int, int]) -> list[int]:
    """Return units by their sizes: processes that take them in this order end nearly together."""
    return sorted(sizes, key=lambda unit: (-sizes[unit], unit))


def read_records_of(
    history: RecordSource, unit: int, judge: BacktestEngine, notes: Notes, progress: Progress
) -> None:
    """Let a judge have all predictions of a partition of the log."""
    epoch, partitions = history.log()
    reading = history.reading
    for partition in sorted(reading.range.begin.keys() | reading.range.end.keys()):
        if partition >= partitions:
            raise ValueError(f"there is no partition {partition}: the log has {partitions}")
    joiner = PredictionJoiner(
        unit, partitions, epoch, judge, reading.levels, reading.chosen, reading.scales,
        reading.assumed,
    )  # fmt: skip
    for batch, share in history.batches(unit, notes):
        joiner.take(batch, notes)
        progress(share)
    joiner.end(notes)


Item = TypeVar("Item")


def pulled(runner: asyncio.Runner, items: AsyncIterator[Item]) -> Iterator[Item]:
    """Yield what an asynchronous source gives, by the runner that it lives in."""

    async def following() -> Item | None:
        return await anext(items, None)

    while (item := runner.run(following())) is not None:
        yield item
