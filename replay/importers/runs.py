"""Agent runs as importers make them, how their files are read, and the count of what was left out.

Not here: what the fields of a tool's own form mean; that is each importer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

Run = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: what is later is no time, and may not fit into 64 bits."""


@dataclass
class Unmapped:
    """What was left out: how often, by reason, and where it was first found.

    `here`: where it was first found in the file that is being read; `place`: where its reader is.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    place: str = ""

    def add(self, reason: str, count: int = 1) -> None:
        """Count something that was left out."""
        self.counts[reason] += count
        self.first.setdefault(reason, self.place)
        self.here.setdefault(reason, self.place)


class NotOfThisForm(ValueError):
    """The file is not what the importer reads; the message says what was found instead, where."""

    def __init__(self, file: Path, why: str, unmapped: Unmapped) -> None:
        found = ", ".join(f"{reason} ({place})" for reason, place in unmapped.here.items())
        super().__init__(f"{file}: {why}; found: {found or 'nothing'}")


def unix_ms(milliseconds: float) -> int | None:
    """Return a time in whole ms; None for 0, which means "not set", and for what is no time."""
    return int(milliseconds) if 0 < milliseconds <= _LAST_MS else None


def iso_ms(value: Any) -> int | None:
    """Return an ISO 8601 time as Unix ms, UTC unless it says; None where it is none."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    return unix_ms(since // timedelta(milliseconds=1))


def run_of(
    source: str,
    domain: object,
    model: object,
    task_id: object,
    steps: list[dict[str, Any]],
    trial: object = None,
) -> Run:
    """Return a run, started with its first call that has a time; what is not said is `unknown`."""
    return {
        "source": source,
        "domain": text_or(domain, "unknown"),
        "agent_model": text_or(model, "unknown"),
        "task_id": text_or(task_id, "unknown"),
        "trial": trial if isinstance(trial, int) and not isinstance(trial, bool) else None,
        "started_at": next((at for step in steps if (at := step["called_at"]) is not None), None),
        "steps": steps,
    }


def step_of(
    tool: str, called_at: int | None = None, returned_at: int | None = None, *, error: bool = False
) -> dict[str, Any]:
    """Return one call of a run; times in Unix ms."""
    return {"tool": tool, "called_at": called_at, "returned_at": returned_at, "error": error}


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
        unmapped.add(f"{name} that are no objects")
    return {}


def list_of(value: Any, name: str, unmapped: Unmapped) -> list[Any]:
    """Return a list, [] where nothing is there; anything else is counted under its name."""
    if isinstance(value, list):
        return value
    if value is not None:
        unmapped.add(f"{name} that are no lists")
    return []


def objects_of(value: Any, name: str, each: str, unmapped: Unmapped) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; what else is in it is counted as `each`."""
    for item in list_of(value, name, unmapped):
        if isinstance(item, dict):
            yield item
        else:
            unmapped.add(f"{each} that are no objects")


def objects(file: Path, unmapped: Unmapped) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file; an array stands for what is in it.

    JSONL is read line by line; lines that are no JSON are counted. One JSON document over several
    lines is read whole. So is, once, a file whose first line is no JSON: only its end tells which
    of the two it is. Raises `OSError`.
    """
    unmapped.here = {}
    for place, document in _documents(file, unmapped):
        entries = document if isinstance(document, list) else [document]
        for number, entry in enumerate(entries, start=1):
            unmapped.place = f"{place}, entry {number}" if entries is document else place
            if isinstance(entry, dict):
                yield entry
            else:
                unmapped.add("entries that are no JSON objects")


def _documents(file: Path, unmapped: Unmapped) -> Iterator[tuple[str, Any]]:
    if (document := _over_several_lines(file)) is not None:
        yield str(file), document
        return
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{file}, line {number}"
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError:
                unmapped.place = place
                unmapped.add("lines that are no JSON")
                continue
            yield place, document


def _over_several_lines(file: Path) -> Any:
    """Return the one JSON document that a file is; None where it is lines, or one line."""
    with file.open("rb") as lines:
        filled = (line for line in lines if line.strip())
        first = next(filled, b"")
        if next(filled, None) is None or _json(first) is not None:
            return None
    return _json(file.read_bytes())


def _json(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
