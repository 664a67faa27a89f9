"""Whom a record is for, and which lane it came by: what its headers say. Most have none.

A replayed dead letter (topics/letters.py) is for the one group that refused it.
"""

from __future__ import annotations

from typing import Final

from processing.records import Headers
from topics.letters import GROUP_HEADER, ORIGIN_HEADER

MAX_POSITION_DIGITS: Final = 18
"""So that a position fits a signed 64-bit integer."""


def meant_for(headers: Headers | None, group: str) -> bool:
    """Return whether `group` handles a record: it does unless the record names another."""
    named = _last(headers, GROUP_HEADER)
    return named is None or named == group.encode()


def lane_of(headers: Headers | None) -> tuple[str, int] | None:
    """Return the (spool id, position) that a record came by as a whole, None where it has none.

    Positions of one lane only grow, so a record at or below the last one seen is a repetition.
    """
    said = _last(headers, ORIGIN_HEADER)
    if said is None:
        return None
    spool, colon, position = said.decode(errors="backslashreplace").rpartition(":")
    # isdecimal alone takes digits of every script, and int a number of any length.
    if not (spool and colon and position.isascii() and position.isdecimal()):
        return None
    return (spool, int(position)) if len(position) <= MAX_POSITION_DIGITS else None


def _last(headers: Headers | None, name: str) -> bytes | None:
    """Return the last value of a header, which is the one that counts in Kafka."""
    for found, value in reversed(headers or ()):
        if found == name:
            return value
    return None
