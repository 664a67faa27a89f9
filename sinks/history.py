"""Threshold history to Postgres: the sink of `headstart.thresholds`.

Takes decoded records in the shape of `topics.schema.Threshold`; the caller leaves tombstones out.
"""

from __future__ import annotations

from typing import ClassVar

from sinks.copytext import encode_columns
from sinks.staging import Record, StagedSink
from sinks.statements import load_statements
from topics.catalogue import HISTORY_GROUP


def encode_threshold(record: Record, /) -> bytes:
    """Return a threshold as one line of COPY text, in the column order of the stage."""
    return b"%b\n" % encode_columns(
        (
            record["tenant"],
            record["workflow_type"],
            record["path"],
            str(record["epoch"]),
            str(record["offset"]),
            str(record["speculate"]),
            str(record["suggest"]),
            str(record["outcomes"]),
            record["learner"],
            str(record["at"]),
        )
    )


class HistorySink(StagedSink):
    """Stores every version of every context's thresholds in `threshold_history`, once each."""

    consumer: ClassVar = HISTORY_GROUP
    sql: ClassVar = load_statements("history")
    encode = staticmethod(encode_threshold)
