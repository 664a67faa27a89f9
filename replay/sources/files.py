"""Files as sources: outcomes, and events as `headstart emit` takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from headstart.events.exact_json import dump_exactly, load_exactly
from headstart.events.schema import fill_in
from headstart.experiments import GROUPS, workflow_group
from learners.outcome import Outcome
from processing.records.batch import RecordBatch
from replay.files.forms import detect_form
from replay.files.input import ZSTD, name_of
from replay.files.json_lines import JsonLines, json_lines
from replay.files.times import iso_ms
from replay.predictions.assumptions import Basis
from replay.predictions.estimates import GuessPlace
from replay.predictions.notes import Notes
from replay.predictions.outcomes_file import OutcomeLine, parse_numbered
from replay.sources.base import (
    NothingThere,
    PredictionSource,
    ReadOptions,
    ReadPrediction,
)
from replay.sources.export_chunks import SKIPPABLE
from replay.sources.export_file import ExportSource, NotAnExport, is_export
from topics.catalogue import EVENTS

ALONE: Final = 20
"""Outcomes in a row that count as one workflow where the file names none."""
_AT_ONCE: Final = 2_000
_NAMED: Final = 10
"""Most unused fields that a warning names."""


class UnknownFile(ValueError):
    """The first line of a file is of an unknown form; the message lists the known ones."""

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"{name_of(file)}: its first line is none of: an export of Headstart, a judged outcome "
            "(confidence, correct), an event (event_type), an agent's run (steps); "
            "`headstart import` reads other tools' exports"
        )


@dataclass(frozen=True)
class OutcomeFile:
    """Predictions with outcomes, one a line, each asked about just before it is judged."""

    file: Path
    reading: ReadOptions
    live: bool = False

    @property
    def name(self) -> str:
        """Its name in messages."""
        return name_of(self.file)

    def units(self) -> list[int]:
        """Return the one unit. Raises `NothingThere`, and `ValueError` where a tenant is wanted."""
        if next(_lines(self.file), None) is None:
            raise NothingThere(f"{self.name} holds no outcomes; see headstart backtest --help")
        if self.reading.chosen.tenant is not None:
            raise ValueError(
                f"{self.name} holds outcomes, which name no tenant: leave out --tenant"
            )
        return [0]

    def predictions(
        self,
        unit: int,  # noqa: ARG002
        notes: Notes,
        basis: Basis,
    ) -> Iterator[tuple[Sequence[ReadPrediction], float]]:
        """Yield all outcomes."""
        scales = self.reading.scales
        unmet, unused, found = scales.named, set[str](), list[ReadPrediction]()
        with json_lines(self.file) as file:
            lines = _counted(file, notes)
            for line in parse_numbered(lines, self.reading.levels, self.name, unused):
                place = GuessPlace("", line.workflow_type or "", line.tool or "")
                outcome = line.judged.outcome
                in_range = self.reading.range.holds(outcome.timestamp)
                if in_range and (line.gain_known if outcome.correct else line.cost_known):
                    basis.record(outcome, place)
                if not in_range or not self._chosen(line):
                    notes.filtered += 1
                    continue
                unmet.discard(line.tool or "")
                group = (
                    notes.predictions // ALONE % GROUPS
                    if line.workflow is None
                    else workflow_group(line.workflow)
                )
                outcome = self._outcome(line, basis, place)
                found.append(ReadPrediction("", line.judged.paths, outcome, group))
                notes.predictions += 1
                if len(found) >= _AT_ONCE:
                    yield found, file.share
                    found = []
        yield found, 1.0
        notes.scaled += scales.named - unmet
        if unused:
            names = ", ".join(sorted(unused)[:_NAMED])
            notes.warnings.append(
                f"{self.name}: not used, as no fields of outcomes: {names}"
                f"{', ...' if len(unused) > _NAMED else ''}; keys of a context belong in context"
            )

    def _outcome(self, line: OutcomeLine, basis: Basis, place: GuessPlace) -> Outcome:
        assumed = self.reading.assumed
        outcome = assumed.priced(
            assumed.counted(line.judged.outcome, basis),
            basis,
            gain_known=line.gain_known,
            cost_known=line.cost_known,
            place=place,
        )
        return self.reading.scales.applied(outcome, line.tool)

    def _chosen(self, line: OutcomeLine) -> bool:
        chosen = self.reading.chosen
        return chosen.workflow_type in (None, line.workflow_type) and chosen.domain in (
            None,
            line.domain,
        )


def _counted(lines: JsonLines, notes: Notes) -> Iterator[tuple[int, bytes]]:
    for each in lines:
        notes.records += 1
        yield each


def _lines(file: Path) -> Iterator[bytes]:
    with json_lines(file) as lines:
        yield from (line for _, line in lines if line.strip())


@dataclass(frozen=True)
class EventFile:
    """Events, one a line, each taken for a record of its own, written when it happened."""

    file: Path
    reading: ReadOptions
    live = True

    @property
    def name(self) -> str:
        """Its name in messages."""
        return name_of(self.file)

    def log(self) -> tuple[int, int]:
        """Return (0, 1): a file has no epoch, and is one partition."""
        return 0, 1

    def units(self) -> list[int]:
        """Return the one unit."""
        if next(_lines(self.file), None) is None:
            raise NothingThere(f"{self.name} holds no events")
        return [0]

    def batches(self, unit: int, notes: Notes) -> Iterator[tuple[RecordBatch, float]]:  # noqa: ARG002
        """Yield the events as records."""
        span = self.reading.range
        batch = SortedFile()
        with json_lines(self.file) as lines:
            written_ms = self.file.stat().st_mtime_ns // 1_000_000
            for number, line in lines:
                if not line.strip():
                    continue
                event, at = _completed(line.strip(), number, written_ms)
                if span.holds(at):
                    batch.add(event, at)
                if len(batch.values) >= _AT_ONCE:
                    yield batch.taken(), lines.share
        if batch.values:
            yield batch.taken(), 1.0


def _completed(line: bytes, number: int, written_ms: int) -> tuple[bytes, int]:
    """Return an event with what `headstart emit` would fill in, and its time in Unix ms.

    An id is made of the line's number, so that every reading gives the same; a time is that of the
    file, `written_ms`. An ISO 8601 time becomes Unix ms. What is no event is left as it is, at 0.
    """
    try:
        event = load_exactly(line)
    except ValueError:
        return line, 0
    if not isinstance(event, dict):
        return line, 0
    filled = dict(event)
    if isinstance(at := event.get("timestamp"), str) and (ms := iso_ms(at)) is not None:
        filled["timestamp"] = ms
    if event.get("id") is None:
        filled["id"] = str(UUID(int=number))
    fill_in(filled, written_ms)
    at = filled["timestamp"]
    return line if filled == event else dump_exactly(filled), at if isinstance(at, int) else 0


@dataclass
class SortedFile:
    """Gathers events into records of one partition, for sources without a log."""

    values: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    offset: int = 0

    def add(self, event: bytes, at: int) -> None:
        """Add one event; `at`: its own time, which stands for the record's."""
        self.values.append(event)
        self.times.append(at)

    def taken(self) -> RecordBatch:
        """Return the gathered events as a batch, and start the next."""
        count = len(self.values)
        end = self.offset + count
        batch = RecordBatch(
            EVENTS.name, 0, self.offset, end, list(range(self.offset, end)), self.times,
            [None] * count, list(self.values),
        )  # fmt: skip
        self.values, self.times, self.offset = [], [], end
        return batch


def open_file(file: Path, reading: ReadOptions, *, outcomes: bool = False) -> PredictionSource:
    """Return the source that a file is, by its first bytes. Raises `UnknownFile`, `OSError`.

    `outcomes`: a file of no recognizable form is read as judged outcomes; its lines are refused
    with the reason.
    """
    with file.open("rb") as read:
        head = read.read(4)
    if head in (SKIPPABLE.to_bytes(4, "little"), ZSTD) and is_export(file):
        return ExportSource(file, reading)
    if not head:
        raise NothingThere(f"{name_of(file)} is empty")
    form, live = detect_form(file)
    if form == "export":
        raise NotAnExport(
            f"{name_of(file)}: an export that was unpacked, or is damaged where it begins; give "
            "the file that `headstart export FILE` wrote"
        )
    if form == "events":
        return EventFile(file, reading)
    if form == "outcomes" or (outcomes and form is None):
        return OutcomeFile(file, reading, live=live)
    raise UnknownFile(file)
