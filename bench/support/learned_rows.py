"""Rows of the contexts table as a worker leaves them: events applied by the worker's own core.

Each workflow type has `CONTEXTS_OF_TYPE` contexts: its own, one of a domain, and its users'.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from headstart.events.schema import new_id
from headstart.keys import event_key
from learners.registry import DEFAULT, policy
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.records.partitioner import partition_for
from processing.state.rows import PARTITION_KEY, with_version
from processing.task import PartitionTask
from topics.catalogue import EVENTS

CONTEXTS_OF_TYPE: Final = 25
TENANTS: Final = 10
STEPS: Final = 10
"""Events of a run."""
TOGETHER: Final = 100
"""Runs at a time, whose events take turns."""
ROUNDS: Final = 2
"""Outcomes of each user's context."""
_USERS: Final = CONTEXTS_OF_TYPE - 2
_GOLDEN: Final = 0.6180339887498949
_AT_ONCE: Final = 5_000

Row = tuple[bytes, bytes]
Sent = tuple[int, bytes, bytes]
"""Partition, key and value of a record."""


@dataclass(frozen=True)
class MadeEvents:
    """Events whose contexts are `types` times `CONTEXTS_OF_TYPE`, in `partitions` partitions."""

    types: int
    partitions: int

    @cached_property
    def _places(self) -> list[tuple[str, str, int, bytes]]:
        """Tenant, workflow type, partition and key, by number of the type."""
        names = [(f"tenant-{n % TENANTS}", f"workflow-{n}") for n in range(self.types)]
        return [
            (tenant, name, partition_for(tenant, name, self.partitions), event_key(tenant, name))
            for tenant, name in names
        ]

    @property
    def all_contexts(self) -> int:
        """How many events in a row have an outcome of every user's context once."""
        return self.types * _USERS

    def event(self, number: int, at: int, spool: str) -> dict[str, Any]:
        """Return the event of a number as the client sends it; `at`: Unix ms."""
        tenant, workflow_type, _partition, _key = self._places[number % self.types]
        turn, lane = divmod(number, TOGETHER)
        draw = number * _GOLDEN % 1.0
        return {
            "id": new_id(at),
            "event_type": "task_complete",
            "tenant": tenant,
            "workflow_type": workflow_type,
            "workflow_id": f"run-{turn // STEPS}-{lane}",
            "task_id": str(turn % STEPS),
            "user_id": f"user-{number // self.types % _USERS}",
            "timestamp": at,
            "tool_id": ("search", "refund", "lookup")[number % 3],
            "success": True,
            "confidence": draw,
            "data": {
                "context": {"domain": "retail", "complexity": 0.5},
                "prediction": {"was_correct": draw * _GOLDEN * 100 % 1.0 < 0.8, "speculated": True},
                "result": {"execution_time_ms": 812.5, "gain_ms": 400.0, "cost_ms": 600.0},
            },
            "origin": [spool, number],
        }

    def sent(self, begin: int, end: int, at: int) -> Iterator[Sent]:
        """Yield the records of events `begin` to `end` of a spool of their own."""
        spool = str(uuid.uuid4())
        for number in range(begin, end):
            _tenant, _type, partition, key = self._places[number % self.types]
            yield partition, key, orjson.dumps(self.event(number, at, spool))


def learned_rows(made: MadeEvents, epoch: int) -> Mapping[int, list[Row]]:
    """Return by partition the rows of all contexts as they stand before offset 0 of a log epoch.

    Each partition's own row is last, as a worker writes them.
    """
    records: dict[int, list[bytes]] = {number: [] for number in range(made.partitions)}
    for partition, _key, value in made.sent(
        0, ROUNDS * made.all_contexts, time.time_ns() // 1_000_000
    ):
        records[partition].append(value)
    return {number: _learned(number, made, epoch, values) for number, values in records.items()}


def _learned(partition: int, made: MadeEvents, epoch: int, values: list[bytes]) -> list[Row]:
    table: dict[bytes, bytes] = {}
    config = LearningConfig(policy(DEFAULT))
    task = PartitionTask(partition, made.partitions, epoch, config, table.get)
    for begin in range(0, len(values), _AT_ONCE):
        part: list[bytes | None] = [*values[begin : begin + _AT_ONCE]]
        count = len(part)
        batch = RecordBatch(
            EVENTS.name, partition, begin, begin + count, list(range(begin, begin + count)),
            [1 << 60] * count, [None] * count, part,
        )  # fmt: skip
        position = 0
        while position < count:
            position = task.apply(batch, position)
            table.update(task.commit().rows)
    own = table.pop(PARTITION_KEY, None)
    rows = [*table.items(), *([(PARTITION_KEY, own)] if own is not None else [])]
    return [(key, with_version(row, epoch, -1)) for key, row in rows]
