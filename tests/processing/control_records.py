"""Control records, and a log of them and of events applied, for the tests of the core."""

from __future__ import annotations

from typing import Any

from learners.registry import policy
from processing.config import LearningConfig
from processing.task import PartitionTask
from tests.processing.building import EPOCH, Table, fetch
from topics.control.messages import Control, control_records

EVERY = "workflow_type=refund"
RETAIL = "workflow_type=refund/domain=retail"


def record(control: Control, key: bytes | None = None) -> tuple[bytes, Any]:
    (made,) = control_records(control, [0], key)
    return made.value, made.headers


def run(*records: Any, table: Table | None = None, key: bytes | None = None) -> tuple[Table, Any]:
    """Apply events and (value, headers) of control records, each by a partition of its own."""
    table = {} if table is None else table
    commit = None
    for each in records:
        core = PartitionTask(
            0, 1, EPOCH, LearningConfig(policy("td"), operators_key=key), table.get
        )
        core.restore(list(table.items()))
        value, headers = each if isinstance(each, tuple) else (each, None)
        batch = fetch(value, offsets=[core.applied_offset + 1])
        if headers is not None:
            batch.headers[core.applied_offset + 1] = headers
        core.apply(batch)
        commit = core.commit()
        table.update(commit.rows)
    return table, commit
