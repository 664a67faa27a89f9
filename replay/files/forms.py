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
    """What a file says that it is: `calls` of agent runs, `events`, judged `outcomes`, or an
    `export`; None: nothing known. `live`: its outcomes say what was started."""

    form: str | None
    live: bool = False


_LOOKED_AT: Final = 101
"""Lines of a file among which one has to say what it is; those before it are broken."""
_TELLING: Final = {
    "steps": "calls", "headstart_export": "export", "event_type": "events", "correct": "outcomes",
}  # fmt: skip
"""Keys of a line that tell a file's form, the most telling first."""
_BROKEN_KEYS: Final = re.compile(rb'"(%s)"\s*:' % "|".join(_TELLING).encode())


def told_by(file: Path) -> FormMatch:
    """Return what a file is, by the columns of CSV, else by the keys of its first lines.

    Values do not count, so that a line with a wrong one is refused with the reason. Raises
    `OSError` and `CannotRead`.
    """
    if (columns := columns_of(file)) is not None:
        return FormMatch(form_of(columns), "speculated" in columns)
    form, likely, live = None, None, False
    for line in _first_lines(file):
        keys, whole = _keys(line)
        found = next((_TELLING[key] for key in _TELLING if key in keys), None)
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
    """Return the keys of a line, and whether it could be read to its end."""
    try:
        record = json.loads(line)  # takes Infinity and NaN, which are refused later
    except (ValueError, RecursionError):
        return frozenset(key.decode() for key in _BROKEN_KEYS.findall(line)), False
    return frozenset(record if isinstance(record, dict) else ()), True
