"""Whom a record is for, and which lane it came by: what its headers say. Most have none.

A replayed dead letter (topics/dead_letters/messages.py) is for the one group that refused it.
"""

from __future__ import annotations

import re
from typing import Final

from processing.records.batch import Headers
from topics.dead_letters.messages import GROUP_HEADER, ORIGIN_HEADER

_LANE: Final = re.compile(r"([^\x00\x1f]{1,64}):([0-9]{1,18})")
"""A spool id by the rules of the event's `origin`, and a position that fits 64 bits, signed."""


def is_for_group(headers: Headers | None, group: str) -> bool:
    """Return whether `group` handles a record: it does unless the record names another."""
    named = _last(headers, GROUP_HEADER)
    return named is None or named == group.encode()


def origin_override(headers: Headers | None) -> tuple[str, int] | None:
    """Return the (spool id, position) of a record's first event; None where its headers name none.

    It takes the place of what the events say of their own origin, whose position a replay is long
    behind; each further event of the record has the next position.
    """
    said = _last(headers, ORIGIN_HEADER)
    found = None if said is None else _LANE.fullmatch(said.decode(errors="backslashreplace"))
    return None if found is None else (found[1], int(found[2]))


def _last(headers: Headers | None, name: str) -> bytes | None:
    """Return the last value of a header, which is the one that counts in Kafka."""
    for found, value in reversed(headers or ()):
        if found == name:
            return value
    return None
