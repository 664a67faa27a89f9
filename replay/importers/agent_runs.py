"""Agent runs as importers make them, how their files are read, and the count of what was left out.

Not here: the meaning of the fields of each tool's form, which its importer knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headstart.events.exact_json import is_large
from headstart.events.schema import FIRST_MS
from replay.files.input import name_of
from replay.files.times import iso_ms, unix_ms
from replay.importers.documents import documents

__all__ = [
    "NO_NAME", "NotOfThisForm", "Run", "Unmapped", "clock_ms", "files_of", "iso_ms", "list_of",
    "object_of", "objects", "objects_of", "refuse", "run_of", "step_of", "text_or", "unix_ms",
]  # fmt: skip

Run = dict[str, Any]

NO_NAME: Final = "<end>"
"""Means the end of a run; `headstart import runs` refuses a tool of this name."""


@dataclass
class Unmapped:
    """What was left out: how often, by reason, and where it was first found.

    `here`: where it was first found in the file that is being read; `place`: where its reader is.
    `duplicates`: how many versions of one id were dropped, by what they are. `alike`: runs that
    were kept although another one has their identity. `optional`: files of a folder, which may be
    of another form. `kinds`: the spans that are not calls, by their recorded kind. `incomplete`:
    calls that were kept, by what is missing of them.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    place: str = ""
    duplicates: Counter[str] = field(default_factory=Counter)
    alike: int = 0
    optional: set[Path] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)
    incomplete: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str, count: int = 1) -> None:
        """Count something that was left out."""
        self.counts[reason] += count
        self.first.setdefault(reason, self.place)
        self.here.setdefault(reason, self.place)


class NotOfThisForm(ValueError):
    """The file is not of the importer's form; the message lists what was found, and where."""

    def __init__(self, file: Path, why: str, unmapped: Unmapped) -> None:
        found = ", ".join(f"{reason} ({place})" for reason, place in unmapped.here.items())
        super().__init__(f"{name_of(file)}: {why}; found: {found or 'nothing'}")


def refuse(file: Path, why: str, unmapped: Unmapped) -> None:
    """Raise `NotOfThisForm`, or count a file of a folder."""
    if file not in unmapped.optional:
        raise NotOfThisForm(file, why, unmapped)
    unmapped.place = name_of(file)
    unmapped.add("files of another form")


def clock_ms(value: Any) -> int | None:
    """Return a time as Unix ms: ISO 8601, or a number of seconds, ms, µs or ns by its size.

    None for what is before the year 2000: no run may have it beside other times.
    """
    at = _by_size(value)
    return at if at is not None and at >= FIRST_MS else None


def _by_size(value: Any) -> int | None:
    if isinstance(value, str) and value.replace(".", "", 1).isdecimal():
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return iso_ms(value)
    for largest, unit in ((1e11, 1000.0), (1e14, 1.0), (1e17, 1e-3)):
        if value < largest:
            return unix_ms(value * unit)
    return unix_ms(value // 1_000_000)


def run_of(
    source: str,
    domain: object,
    model: object,
    task_id: object,
    steps: list[dict[str, Any]],
    trial: object = None,
) -> Run:
    """Return a run, started with its first call that has a time; missing fields are `unknown`."""
    return {
        "source": source,
        "domain": text_or(domain, "unknown"),
        "agent_model": text_or(model, "unknown"),
        "task_id": text_or(task_id, "unknown"),
        "trial": trial if _is_integer(trial) else None,
        "started_at": next((at for step in steps if (at := step["called_at"]) is not None), None),
        "steps": steps,
    }


def step_of(
    tool: str, called_at: int | None = None, returned_at: int | None = None, *, error: bool = False
) -> dict[str, Any]:
    """Return one call of a run; times in Unix ms. An end before the start is no end."""
    if None not in (called_at, returned_at) and returned_at < called_at:  # type: ignore[operator]
        returned_at = None
    return {"tool": tool, "called_at": called_at, "returned_at": returned_at, "error": error}


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and not is_large(value)


def text_or(value: object, missing: str) -> str:
    """Return a value as text that is not empty."""
    if isinstance(value, bool | dict | list) or value is None:
        return missing
    return str(value) or missing


def object_of(value: Any, name: str, unmapped: Unmapped) -> dict[str, Any]:
    """Return an object, {} where nothing is there; anything else is counted under its name."""
    if isinstance(value, dict):
        return value
    if value is not None:
        unmapped.add(f"{name} that are not objects")
    return {}


def list_of(value: Any, name: str, unmapped: Unmapped) -> list[Any]:
    """Return a list, [] where nothing is there; anything else is counted under its name."""
    if isinstance(value, list):
        return value
    if value is not None:
        unmapped.add(f"{name} that are not lists")
    return []


def objects_of(value: Any, name: str, each: str, unmapped: Unmapped) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; what else is in it is counted as `each`."""
    for item in list_of(value, name, unmapped):
        if isinstance(item, dict):
            yield item
        else:
            unmapped.add(f"{each} that are not objects")


def files_of(files: Path | Iterable[Path]) -> list[Path]:
    """Return the files of one import."""
    return [files] if isinstance(files, Path) else list(files)


def objects(file: Path, unmapped: Unmapped) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file; an array stands for what is in it.

    JSONL and CSV are read line by line, other JSON documents whole; what is neither is counted.
    Raises `OSError` and `CannotRead`.
    """
    unmapped.here = {}
    for place, document in documents(file):
        unmapped.place = place
        if document is None:
            unmapped.add("lines that are not JSON")
            continue
        entries = document if isinstance(document, list) else [document]
        for number, entry in enumerate(entries, start=1):
            unmapped.place = f"{place}, entry {number}" if entries is document else place
            if isinstance(entry, dict):
                yield entry
            else:
                unmapped.add("entries that are not JSON objects")
