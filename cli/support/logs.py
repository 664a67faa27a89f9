"""Configures workers' logs: structlog events, formatted by `headstart.log_lines`, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any

import structlog

from headstart.log_lines import (
    configure_logging,
    described,
    log_format,
    log_level,
    log_line,
    log_stream,
)


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
        logger_factory=structlog.PrintLoggerFactory(log_stream()),
        cache_logger_on_first_use=False,
    )  # fmt: skip
    configure_logging(max(level, logging.WARNING))
