"""Events, fetches and a table for the tests of the core, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from headstart.events.frames import encode_frame
from headstart.events.schema import new_id
from learners.policy import Policy
from learners.registry import POLICIES
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.state.rows import (
    PARTITION_KEY,
    ContextRow,
    TaskStateRow,
    context_key,
    decode_context,
    decode_partition,
    is_deleted,
)
from processing.task import Checkpoint, PartitionTask

NOW = 1_760_000_000_000
EPOCH = 9
TD, EMA = POLICIES["td"], POLICIES["ema"]
Table = dict[bytes, bytes]


def event(kind: str = "task_complete", **fields: Any) -> dict[str, Any]:
    return {
        "id": new_id(NOW),
        "event_type": kind,
        "tenant": "acme",
        "workflow_type": "refund",
        "workflow_id": "w1",
        "timestamp": NOW,
        **fields,
    }


def start(confidence: float = 0.95, tool: str | None = "search", **fields: Any) -> dict[str, Any]:
    prediction = {"tool_id": tool, "speculated": True, **fields.pop("prediction", {})}
    data = {"context": {"domain": "retail"}, "prediction": prediction}
    return event(
        "speculation_start", confidence=confidence, **{"task_id": "t1", "data": data, **fields}
    )


def judged(correct: bool = True, confidence: float = 0.95, **fields: Any) -> dict[str, Any]:
    """Return a completion that counts at once."""
    data = {"context": {"domain": "retail"}, "prediction": {"was_correct": correct}}
    return event(confidence=confidence, **{"data": data, **fields})


def fetch(*records: Any, offsets: Sequence[int] | None = None, end: int | None = None) -> Any:
    """Return records (one event, a list of events as a frame, or bytes) as one fetch."""
    values = [
        record
        if isinstance(record, bytes) or record is None
        else encode_frame(map(orjson.dumps, record))
        if isinstance(record, list)
        else orjson.dumps(record)
        for record in records
    ]
    places = list(range(len(values)) if offsets is None else offsets)
    return RecordBatch(
        "headstart.events", 0, 0, places[-1] + 1 if end is None else end, places,
        [NOW] * len(values), [b"key"] * len(values), values,
    )  # fmt: skip


def make(table: Table | None = None, policy: Policy = TD, partitions: int = 1) -> PartitionTask:
    rows = {} if table is None else table
    made = PartitionTask(0, partitions, EPOCH, LearningConfig(policy), rows.get)
    made.restore(rows.items())
    return made


def store(table: Table, commit: Checkpoint) -> None:
    table.update(commit.rows)


def live(table: Table) -> Table:
    """Return the rows that are not deleted."""
    return {key: row for key, row in table.items() if not is_deleted(row)}


def run(*records: Any, table: Table | None = None, policy: Policy = TD) -> tuple[Table, Checkpoint]:
    """Apply records, as what follows in the log, to a restarted partition."""
    table = {} if table is None else table
    partition = make(table, policy)
    begin = partition.applied_offset + 1
    batch = fetch(*records, offsets=range(begin, begin + len(records)))
    assert partition.apply(batch) == len(records)
    commit = partition.commit()
    store(table, commit)
    return table, commit


def context(table: Table, path: str = "workflow_type=refund", tenant: str = "acme") -> ContextRow:
    return decode_context(table[context_key(tenant, path)])


def counts(table: Table) -> TaskStateRow:
    return decode_partition(table[PARTITION_KEY])


def reasons(commit: Checkpoint) -> list[str]:
    name = "__connect.errors.exception.message"
    return [dict(letter.headers)[name].decode() for letter in commit.dead_letters]
