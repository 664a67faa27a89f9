"""A log of events and control records, each with the Kafka timestamp that it has."""

from __future__ import annotations

from typing import Any

import orjson

from processing.records.batch import RecordBatch
from tests.processing.control_records import record
from topics.control.messages import Clock

NOW = 1_760_000_100_000
"""A whole tick."""
Log = list[tuple[Any, int]]
"""Events, or clock and other control records, and the Kafka timestamp of each."""


def at(moment: int) -> tuple[Clock, int]:
    return Clock("c", moment), moment


def event_record(what: dict[str, Any], moment: int | None = None) -> tuple[dict[str, Any], int]:
    return what, what["timestamp"] if moment is None else moment


def batch_of(log: Log, first: int) -> RecordBatch:
    offsets = list(range(first, first + len(log)))
    made = RecordBatch(
        "t", 0, first, first + len(log), offsets, [moment for _, moment in log],
        [b"k"] * len(log), [None] * len(log),
    )  # fmt: skip
    for place, (what, _moment) in enumerate(log):
        if isinstance(what, dict):
            made.values[place] = orjson.dumps(what)
        else:
            made.values[place], made.headers[first + place] = record(what)
    return made
