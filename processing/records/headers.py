"""Reads two optional record headers: the only consumer group that a record is for, and the origin
that overrides its events' own.

Replayed dead letters (topics/dead_letters/messages.py) have both.
"""

from __future__ import annotations

import re
from typing import Final

from processing.records.batch import Headers
from topics.dead_letters.messages import GROUP_HEADER, ORIGIN_HEADER

_ORIGIN: Final = re.compile(r"([^\x00\x1f]{1,64}):([0-9]{1,18})")
"""A spool id as in an event's `origin`, and a position that fits a signed 64-bit integer."""


def is_for_group(headers: Headers | None, group: str) -> bool:
    """Return whether `group` handles a record: unless its header names another group."""
    named = _last(headers, GROUP_HEADER)
    return named is None or named == group.encode()


def origin_override(headers: Headers | None) -> tuple[str, int] | None:
    """Return the (spool id, position) of a record's first event; None without the header.

    It overrides the events' own origin, by which a replay would be a duplicate. Each further event
    of the record has the next position.
    """
    value = _last(headers, ORIGIN_HEADER)
    found = None if value is None else _ORIGIN.fullmatch(value.decode(errors="backslashreplace"))
    return None if found is None else (found[1], int(found[2]))


def _last(headers: Headers | None, name: str) -> bytes | None:
    """Return the last value of a header, which is the one that counts in Kafka."""
    for found, value in reversed(headers or ()):
        if found == name:
            return value
    return None
