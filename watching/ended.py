"""Why a worker ended, as the end of its log has it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import orjson

_TAIL_BYTES: Final = 65_536
_MOST_CHARACTERS: Final = 500
_STARTS, _ENDS = "worker.starts", "worker.ends"
_ERROR: Final = re.compile(r' error=(?:"((?:\\"|[^"])*)"|(\S+))')


def why_ended(workers: Path, label: str) -> str | None:
    """Return the error that a worker's log ends with; None where it ran since, or was killed.

    `label`: NAME-INSTANCE. A spare that took over has a log of its own: the newer one counts.
    """
    logs = [workers / "logs" / f"{label}{more}.log" for more in ("", "-spare")]
    there = [(log.stat().st_mtime, log) for log in logs if log.exists()]
    for line in reversed(_tail(max(there)[1])) if there else ():
        event, error = _read(line)
        if event == _STARTS:
            return None
        if error is not None:
            return error[:_MOST_CHARACTERS]
    return None


def _tail(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _read(line: str) -> tuple[str | None, str | None]:
    """Return a line's event, of the two that count, and the error that ended the worker."""
    if line.startswith("error: "):  # what a command says last
        return None, line.removeprefix("error: ")
    if line.startswith("{"):
        try:
            said: dict[str, Any] = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None, None
        event = said.get("event")
        return event, str(said.get("error")) if event == _ENDS else None
    if f" {_STARTS} " in line:
        return _STARTS, None
    if f" {_ENDS} " in line and (found := _ERROR.search(line)):
        return _ENDS, (found[1] or found[2] or "").replace('\\"', '"')
    return None, None
