"""Decides which fields of Redis that differ from the table are wrong. Pure.

Used by workers (`agents.thresholds.redis_repair`) and commands (`replay.verify.served`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sinks.redis.comparison import StoredField
from sinks.redis.stored_fields import Fault, Reach, classify, classify_ahead
from topics.schema.json_schema import PublishedThreshold


class WrongField(NamedTuple):
    """A field that differs from the table's `threshold` (None: the table has none)."""

    stored: StoredField
    threshold: PublishedThreshold | None
    fault: Fault


class FieldFindings(NamedTuple):
    """Wrong fields, and those newer than the table, which depend on the end of the log."""

    wrong: list[WrongField]
    ahead: list[tuple[StoredField, PublishedThreshold | None]]


def find_wrong(
    found: Iterable[tuple[StoredField, PublishedThreshold | None, Reach]], *, marks: bool = False
) -> FieldFindings:
    """Classify fields, each with the threshold in the table and how far the table is.

    `marks`: whether the table has the marks of deleted contexts, as a worker's has.
    """
    result = FieldFindings([], [])
    for stored, threshold, reach in found:
        fault = classify(threshold, stored.raw, reach, marks=marks)
        if fault == "ahead":
            result.ahead.append((stored, threshold))
        elif fault is not None:
            result.wrong.append(WrongField(stored, threshold, fault))
    return result


def beyond_log_end(
    ahead: Iterable[tuple[StoredField, PublishedThreshold | None]], log_end: int
) -> list[WrongField]:
    """Return the fields with versions that the log never had (see `classify_ahead`)."""
    found = []
    for stored, threshold in ahead:
        assert stored.raw is not None
        fault = classify_ahead(stored.raw, log_end, known=threshold is not None)
        if fault is not None:
            found.append(WrongField(stored, threshold, fault))
    return found
