"""Sources of predictions: the interfaces of broker, archive, exports and files.

A source has units that share nothing (partitions of the log), so they may be read side by side.
Reading never commits an offset and never writes to a topic. A source yields batches; it does not
import the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from headstart.keys import DEFAULT_LEVELS
from learners.outcome import Outcome
from processing.records.batch import RecordBatch
from replay.predictions.assumptions import Assumed, Basis
from replay.predictions.notes import Notes
from replay.predictions.unjoined import Filter
from replay.predictions.what_if import PayoffScales


class NothingThere(LookupError):
    """The source has nothing in the range; the message has where it looked, and what to do."""


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
        """Return whether a time is within the range; None is, where the range has no times."""
        if at is None:
            return self.since is None and self.until is None
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@dataclass(frozen=True)
class ReadOptions:
    """How a history is read: which part, which predictions of it, by which levels.

    `whole`: records lost to retention while reading are an error, not a warning.
    """

    levels: Sequence[str] = DEFAULT_LEVELS
    range: TimeRange = field(default_factory=TimeRange)
    chosen: Filter = field(default_factory=Filter)
    scales: PayoffScales = field(default_factory=PayoffScales)
    assumed: Assumed = field(default_factory=Assumed)
    whole: bool = False


class ReadPrediction(NamedTuple):
    """A prediction whose outcome is known when it is read.

    `paths`: its contexts, coarse to fine; `group`: of its workflow, see `workflow_group`.
    """

    tenant: str
    paths: tuple[str, ...]
    outcome: Outcome
    group: int


class _Source(Protocol):
    """Predictions in the order in which they came, by unit. It can be sent to another process."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    @property
    def live(self) -> bool:
        """Whether it has what executors really started."""
        ...

    @property
    def reading(self) -> ReadOptions:
        """How it is read."""
        ...

    def units(self) -> Sequence[int]:
        """Return the units, those with most to read first. Raises `NothingThere`, and what opening
        it raises."""
        ...


@runtime_checkable
class RecordSource(_Source, Protocol):
    """Records of `headstart.events`, as the agents get them; predictions have yet to be joined."""

    def log(self) -> tuple[int, int]:
        """Return the log's epoch and how many partitions it has."""
        ...

    def batches(self, unit: int, notes: Notes) -> Iterator[tuple[RecordBatch, float]]:
        """Yield a partition's records in order, and which share of it was read by then."""
        ...


@runtime_checkable
class OutcomeSource(_Source, Protocol):
    """Predictions with their outcomes."""

    def predictions(
        self, unit: int, notes: Notes, basis: Basis
    ) -> Iterator[tuple[Sequence[ReadPrediction], float]]:
        """Yield a unit's predictions in order, and which share of it was read by then.

        `basis` counts what their worth rests on.
        """
        ...


PredictionSource = RecordSource | OutcomeSource


def largest_first(sizes: Mapping[int, int]) -> list[int]:
    """Return units by their sizes: processes that take them in this order end nearly together."""
    return sorted(sizes, key=lambda unit: (-sizes[unit], unit))


Item = TypeVar("Item")


def pulled(runner: asyncio.Runner, items: AsyncIterator[Item]) -> Iterator[Item]:
    """Yield the items of an asynchronous iterator, using its own runner."""

    async def following() -> Item | None:
        return await anext(items, None)

    while (item := runner.run(following())) is not None:
        yield item
