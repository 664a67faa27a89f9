"""Which fields of Redis are wrong, of those that hold something else than the table says. Pure.

One rule for the workers (agents/thresholds/redis_repair.py) and for the commands
(replay/verify/served.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sinks.redis.comparison import StoredField
from sinks.redis.stored_fields import Fault, Reach, judge, settled
from topics.schema.json_schema import PublishedThreshold


class Wrong(NamedTuple):
    """A field that holds something else than the table says (`threshold`; None: nothing)."""

    stored: StoredField
    threshold: PublishedThreshold | None
    fault: Fault


class FieldVerdicts(NamedTuple):
    """What is wrong, and what is newer than the table: whether that is wrong the log says."""

    wrong: list[Wrong]
    ahead: list[tuple[StoredField, PublishedThreshold | None]]


def judged(found: Iterable[tuple[StoredField, PublishedThreshold | None, Reach]]) -> FieldVerdicts:
    """Judge fields; each with what the table says of it, and how far the table is (see `judge`)."""
    result = FieldVerdicts([], [])
    for stored, threshold, reach in found:
        fault = judge(threshold, stored.raw, reach)
        if fault == "ahead":
            result.ahead.append((stored, threshold))
        elif fault is not None:
            result.wrong.append(Wrong(stored, threshold, fault))
    return result


def beyond(
    ahead: Iterable[tuple[StoredField, PublishedThreshold | None]], log_end: int
) -> list[Wrong]:
    """Return those of versions that the log never had (see `settled`)."""
    found = []
    for stored, threshold in ahead:
        assert stored.raw is not None
        fault = settled(stored.raw, log_end, known=threshold is not None)
        if fault is not None:
            found.append(Wrong(stored, threshold, fault))
    return found
