"""Detects what a file holds by the names in its first lines, never by their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from replay.files.json_lines import columns_of, form_of, json_lines


class FormMatch(NamedTuple):
    """The form of a file: `calls` of agent runs, `events`, judged `outcomes`, `export` or None
    (unknown). `live`: its outcomes record what was started."""

    form: str | None
    live: bool = False


_LOOKED_AT: Final = 101
"""Number of lines examined: the first ones may be damaged."""
_FORM_BY_KEY: Final = {
    "steps": "calls", "headstart_export": "export", "event_type": "events", "correct": "outcomes",
}  # fmt: skip
"""The form of a file by a key of its lines; the first that is found applies."""
_BROKEN_KEYS: Final = re.compile(rb'"(%s)"\s*:' % "|".join(_FORM_BY_KEY).encode())


def detect_form(file: Path) -> FormMatch:
    """Return the form of a file, by the columns of CSV, else by the keys of its first lines.

    Values are not examined, so that a line with an invalid value is refused with the reason. Raises
    `OSError` and `CannotRead`.
    """
    if (columns := columns_of(file)) is not None:
        return FormMatch(form_of(columns), "speculated" in columns)
    form, likely, live = None, None, False
    for line in _first_lines(file):
        keys, whole = _keys(line)
        found = next((_FORM_BY_KEY[key] for key in _FORM_BY_KEY if key in keys), None)
        form = form or (found if whole else None)
        if form not in (None, "outcomes"):
            break
        likely = likely or found or ("outcomes" if {"confidence", "context"} <= keys else None)
        live = live or "speculated" in keys
    return FormMatch(form or likely, live)


def _first_lines(file: Path) -> Iterator[bytes]:
    with json_lines(file) as lines:
        yield from islice((line for _, line in lines if line.strip()), _LOOKED_AT)


def _keys(line: bytes) -> tuple[frozenset[str], bool]:
    """Return the keys of a line, and whether the whole line could be parsed."""
    try:
        record = json.loads(line)  # takes Infinity and NaN, which are refused later
    except (ValueError, RecursionError):
        return frozenset(key.decode() for key in _BROKEN_KEYS.findall(line)), False
    return frozenset(record if isinstance(record, dict) else ()), True
