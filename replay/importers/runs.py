"""Agent runs as importers make them, and the count of what they could not map. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

Run = dict[str, Any]


def iso_ms(value: Any) -> int | None:
    """Return an ISO 8601 time as Unix ms, UTC unless it says; None where it is none."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


class NotOfThisForm(ValueError):
    """The file is not what the importer reads; the message says what was found instead."""


@dataclass
class Unmapped:
    """What was left out, by reason."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str, count: int = 1) -> None:
        """Count something that was left out."""
        self.counts[reason] += count


def run_of(
    source: str,
    domain: object,
    model: object,
    task_id: object,
    steps: list[dict[str, Any]],
    trial: object = None,
) -> Run:
    """Return a run; what the tool does not say of it is `unknown`."""
    return {
        "source": source,
        "domain": text_or(domain, "unknown"),
        "agent_model": text_or(model, "unknown"),
        "task_id": text_or(task_id, "unknown"),
        "trial": trial if isinstance(trial, int) and not isinstance(trial, bool) else None,
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


def objects(file: Path, unmapped: Unmapped) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, one a line; lines that are none are counted.

    A file that is one JSON document yields it, or the objects of its array.
    """
    raw = file.read_bytes()
    try:
        whole = orjson.loads(raw)
    except orjson.JSONDecodeError:
        whole = None
    if whole is not None:
        found = whole if isinstance(whole, list) else [whole]
    else:
        found = list(_lines(raw, unmapped))
    for each in found:
        if isinstance(each, dict):
            yield each
        else:
            unmapped.add("entries that are no JSON objects")


def _lines(raw: bytes, unmapped: Unmapped) -> Iterator[Any]:
    for line in raw.splitlines():
        if not line.strip():
            continue
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:
            unmapped.add("lines that are no JSON")
