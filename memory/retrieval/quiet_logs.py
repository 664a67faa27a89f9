"""Keeps psycopg from logging what a service answers in `degraded`, in the service's thread only."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOGGERS: Final = ("psycopg", "psycopg.pool")


class _OtherThreads(logging.Filter):
    """Lets through what other threads than some log: the application's own use of psycopg."""

    def __init__(self) -> None:
        super().__init__()
        self.quiet: Counter[int] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        return not self.quiet[record.thread or 0]


_filter: Final = _OtherThreads()


@contextmanager
def quiet_psycopg() -> Iterator[None]:
    """Drop psycopg's records of this thread, which has one for each attempt to connect."""
    own = threading.get_ident()
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_filter)  # once, however often it is added
    _filter.quiet[own] += 1
    try:
        yield
    finally:
        _filter.quiet[own] -= 1
