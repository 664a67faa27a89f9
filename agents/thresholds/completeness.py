"""From where on the changelog is complete: what the last record of each of its batches says.

An owner appends all of its rows again now and then (agents/thresholds/checkpoint_writer.py);
whoever restores a table from nothing begins there, and reads as much as the table is large, however
long the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HEADER: Final = "headstart.complete-from"


def completeness(offset: int) -> tuple[str, bytes]:
    """Return the header that says: every row stands at `offset` or behind it."""
    return HEADER, str(offset).encode()


def complete_from(headers: Iterable[tuple[str, bytes]]) -> int:
    """Return the offset that a record's headers name; 0, the whole log, where they name none."""
    said = dict(headers).get(HEADER, b"")
    return int(said) if said.isdigit() else 0
