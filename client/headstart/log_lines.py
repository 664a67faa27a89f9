"""Log lines: one line per event, text or JSON, with the time in UTC and secrets masked.

HEADSTART_LOG_FORMAT (`text`, `json`) and HEADSTART_LOG_LEVEL (`debug`, `info`, `warning`, `error`)
choose the format and level of Headstart's own processes. An application that imports the client
keeps its own logging.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, TextIO, cast, get_args

import orjson

from headstart.scrubbing.masking import masked

Format = Literal["text", "json"]
LEVELS: Final = ("debug", "info", "warning", "error")

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def log_format() -> Format:
    """Return HEADSTART_LOG_FORMAT, by default `text`. Raises `ValueError`."""
    return cast(Format, _chosen("HEADSTART_LOG_FORMAT", "text", get_args(Format)))


def log_level() -> int:
    """Return HEADSTART_LOG_LEVEL as logging's number, INFO by default. Raises `ValueError`."""
    return int(getattr(logging, _chosen("HEADSTART_LOG_LEVEL", "info", LEVELS).upper()))


def _chosen(variable: str, default: str, choices: tuple[str, ...]) -> str:
    value = (os.environ.get(variable) or default).lower()
    if value not in choices:
        raise ValueError(f"{variable} must be one of {', '.join(choices)}, not {value!r:.64}")
    return value


def log_line(moment: float, level: str, event: str, more: Mapping[str, Any], form: Format) -> str:
    """Return one line without newline. `moment`: Unix seconds; `more`: further fields."""
    time = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    fields = {name: _plain(value) for name, value in more.items()}
    if form == "json":
        line = {"time": time, "level": level.lower(), "event": masked(event), **fields}
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    pairs = "".join(f" {name}={_quoted(value)}" for name, value in fields.items())
    return f"{time} {level.upper():7} {_one_line(masked(event))}{pairs}"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, BaseException):
        return masked(f"{type(value).__name__}: {value}")
    return masked(str(value))


def _quoted(value: Any) -> str:
    text = _one_line(str(value))
    if text and not any(each in text for each in ' "='):
        return text
    return '"' + text.replace('"', '\\"') + '"'


def _one_line(text: str) -> str:
    """Return text with newlines and control characters escaped."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def described(error: ExceptionInfo) -> dict[str, str]:
    """Return an exception as fields: its text, and its traceback without local variables."""
    return {"error": f"{error[0].__name__}: {error[1]}", "traceback": _trace(error)}


def _trace(error: ExceptionInfo) -> str:
    return "".join(traceback.format_exception(*error)).strip()


class LineFormatter(logging.Formatter):
    """Formats the records of the standard library's loggers as `log_line` does."""

    def __init__(self, form: Format) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        more: dict[str, Any] = {"logger": record.name, "pid": record.process}
        if record.exc_info and record.exc_info[0] is not None:
            more |= described(record.exc_info)
        event = record.getMessage()
        return log_line(record.created, record.levelname, event, more, self._form)


def log_stream() -> TextIO:
    """Return the unmasked stderr: a log line masks each field itself."""
    stream: TextIO = getattr(sys.stderr, "unmasked", sys.stderr)
    return stream


def configure_logging(level: int | None = None) -> None:
    """Log to stderr, one line per event.

    `level`: a logging level, by default HEADSTART_LOG_LEVEL. Raises `ValueError`.
    """
    handler = logging.StreamHandler(log_stream())
    handler.setFormatter(LineFormatter(log_format()))
    logging.basicConfig(level=log_level() if level is None else level, handlers=[handler])
