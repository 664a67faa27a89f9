"""A header on the last record of each changelog batch: from which offset on the log is complete.

An owner appends all of its rows again now and then (agents/thresholds/checkpoint_writer.py). A
restore into an empty store begins there: it reads as much as the table holds, however long the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HEADER: Final = "headstart.complete-from"


def completeness(offset: int) -> tuple[str, bytes]:
    """Return the header: every row is at or after `offset`."""
    return HEADER, str(offset).encode()


def complete_from(headers: Iterable[tuple[str, bytes]]) -> int:
    """Return the offset in a record's headers; 0, the whole log, without one."""
    value = dict(headers).get(HEADER, b"")
    return int(value) if value.isdigit() else 0
