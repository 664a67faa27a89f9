"""Configures workers' logs: structlog events, formatted by `headstart.log_lines`, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from headstart.log_lines import (
    configure_logging,
    described,
    log_format,
    log_level,
    log_line,
    log_stream,
)


class _LossyStream:
    """A stream that drops what cannot be written: a full disk may hold the log, too."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def configure_worker_logs() -> None:
    """Log one line per event; of libraries only warnings. Raises `ValueError` for a bad setting."""
    form, level = log_format(), log_level()

    def render(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> str:
        event, name = str(fields.pop("event")), str(fields.pop("level"))
        error = fields.pop("exc_info", None)
        if error is True:
            error = sys.exc_info()
        elif isinstance(error, BaseException):
            error = type(error), error, error.__traceback__
        more = dict(fields)
        if error and error[0] is not None:
            more |= described(error)
        return log_line(time.time(), name, event, more, form)

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level,
                    render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _LossyStream(log_stream()))),
        cache_logger_on_first_use=False,
    )  # fmt: skip
    configure_logging(max(level, logging.WARNING))
