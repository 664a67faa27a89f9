"""Finds the error that ended a worker at the end of its log."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from headstart.scrubbing.masking import masked

_TAIL_BYTES: Final = 65_536
_MOST_CHARACTERS: Final = 500
_STARTS, _ENDS = "worker.started", "worker.failed"
_ERROR: Final = re.compile(r' error=(?:"((?:\\"|[^"])*)"|(\S+))')
_COMMAND_ERROR: Final = re.compile(r"[Ee]rror: ")
"""The last line of a failed command; click's begins with a capital."""
_FAULT: Final = "this is a fault of Headstart"
_TRACEBACK: Final = "Traceback (most recent call last)"
_LOGGED: Final = re.compile(r"\d{4}-\d\d-\d\dT|\{")


def why_ended(workers: Path, label: str) -> str | None:
    """Return the error at the end of a worker's log; None if it runs again, or was killed.

    `label`: NAME-INSTANCE. A spare that took over has its own log: the newer one counts.
    """
    logs = [workers / "logs" / f"{label}{more}.log" for more in ("", "-spare")]
    there = [(log.stat().st_mtime, log) for log in logs if log.exists()]
    return why_log_ends(max(there)[1]) if there else None


def why_log_ends(log: Path, begin: int = 0) -> str | None:
    """Return the error at the end of a log in one line, with passwords masked; None: no error.

    `begin`: byte offset of the process's first line.
    """
    lines = [line.rstrip() for line in _tail(log, begin)]
    return _why([line for line in lines if line])


def _why(lines: Sequence[str]) -> str | None:
    if lines and _FAULT in lines[-1]:
        lines = lines[:-1]  # the traceback above it has the details
    for line in reversed(lines):
        event, error = _read(line)
        if event == _STARTS:
            return None
        if line.startswith(_TRACEBACK) and not _LOGGED.match(lines[-1]):
            error = lines[-1]  # nothing was logged after the traceback
        if error is not None:
            return masked(error)[:_MOST_CHARACTERS]
    return None


def _tail(log: Path, begin: int) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(begin, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _read(line: str) -> tuple[str | None, str | None]:
    """Return a line's event (start or end of the worker, else None) and its error."""
    if command := _COMMAND_ERROR.match(line):
        return None, line[command.end() :]
    if line.startswith("{"):
        try:
            fields: dict[str, Any] = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None, None
        event = fields.get("event")
        return event, str(fields.get("error")) if event == _ENDS else None
    if f" {_STARTS} " in line:
        return _STARTS, None
    if f" {_ENDS} " in line and (found := _ERROR.search(line)):
        return _ENDS, (found[1] or found[2] or "").replace('\\"', '"')
    return None, None
