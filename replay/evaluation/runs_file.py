"""Reads the runs of a file: JSON, one a line or otherwise, as `recorded_run` defines them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from replay.evaluation.recorded_run import (
    InvalidRun,
    RecordedRun,
    UnknownArguments,
    run_of_record,
)
from replay.files.input import name_of
from replay.importers.documents import documents


@dataclass
class RunsOfFile:
    """The runs of a file in its order, and the lines that are none: `FILE:LINE: reason`.

    `unknown`: how many of those lines are runs with a call whose arguments are not known.
    """

    runs: list[RecordedRun] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: int = 0

    @property
    def calls(self) -> int:
        """How many calls the runs have."""
        return sum(len(run.steps) for run in self.runs)


class NoRuns(LookupError):
    """A file has no run with a call; the message has the reason, and where to find the form."""


def read_recorded_runs(file: Path) -> RunsOfFile:
    """Return the runs of a file of `local_file`; lines that are not runs are named and left out.

    A JSON array stands for its entries. Raises `OSError`, `CannotRead`, and `NoRuns`.
    """
    found = RunsOfFile()
    for place, document in documents(file, mark=True):
        where = place.replace(", line ", ":")
        if document is None:
            found.refused.append(f"{where}: not JSON")
            continue
        entries = document if isinstance(document, list) else [document]
        for number, entry in enumerate(entries, start=1):
            try:
                found.runs.append(run_of_record(entry))
            except InvalidRun as invalid:
                found.unknown += isinstance(invalid, UnknownArguments)
                entry_of = f", entry {number}" if entries is document else ""
                found.refused.append(f"{where}{entry_of}: {invalid}")
    if not found.calls:
        raise NoRuns(_why(file, found))
    return found


def _why(file: Path, found: RunsOfFile) -> str:
    why = f"{name_of(file)} holds no run with a call"
    if found.refused:
        count = len(found.refused)
        were = "1 line was refused" if count == 1 else f"{count:,} lines were refused; the first"
        why += f": {were}: {found.refused[0]}"
    return f"{why}. docs/how-to/evaluate-a-predictor.md describes the form of a run"
