"""What noticing costs the history worker, the pure part: CPU per event and per published value.

Thresholds as a partition's core publishes them, of simulated outcomes, learned by HOPS. Beside it
what the worker does with each value anyway: making a row of it. Not in it: Postgres, which is asked
one to five times more in a transaction. CPU time of the thread, because other work on the machine
does not count there.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from bench.support.measuring import echo
from learners.registry import policy
from processing.config import LearningConfig
from processing.notices import Key, NoticeState, take, watchable
from processing.records.batch import RecordBatch
from processing.task import PartitionTask
from sinks.postgres.history import encode_threshold
from topics.schema.json_schema import PublishedThreshold

LEVELS: Final = ("domain", "user_id")
_decode = msgspec.json.Decoder(PublishedThreshold).decode


class Spent(NamedTuple):
    """CPU time in µs: processing of the values without notices, and detection of notices."""

    rows: float
    noticing: float


def run(count: int = 100_000, repeat: int = 5) -> dict[str, Any]:
    """Return us of CPU by events in a fetch: medians, with their spread."""
    figures: dict[str, Any] = {"events": count, "rounds": repeat}
    for fetch in (8_000, 1_000, 100):
        batches = list(_published(count, fetch))
        values = sum(map(len, batches))
        found = [_measured(batches) for _round in range(repeat)]
        noticing = [each.noticing for each in found]
        figures[f"fetches of {fetch}"] = {
            "values_per_event": round(values / count, 3),
            "us_per_event": round(statistics.median(noticing) / count, 3),
            "us_per_value": round(statistics.median(noticing) / values, 2),
            "spread": [round(each / values, 2) for each in (min(noticing), max(noticing))],
            "us_per_value_anyway": round(statistics.median(e.rows for e in found) / values, 2),
        }
        echo(f"fetches of {fetch}: {figures[f'fetches of {fetch}']}")
    return figures


def _events(count: int) -> Iterator[bytes]:
    """Yield outcomes of 8 workflow types, 2 domains, 20 users, as sure as they are right."""
    draw = random.Random(7)
    for number in range(count):
        confidence = draw.uniform(0.5, 1.0)
        prediction = {"was_correct": draw.random() < confidence, "speculated": True}
        data = {"context": {"domain": f"d{draw.randrange(2)}"}, "prediction": prediction}
        yield orjson.dumps(
            {
                "id": f"0199c82c-c000-7abc-8def-{number:012x}",
                "event_type": "task_complete",
                "tenant": "bench",
                "workflow_type": f"workflow-{draw.randrange(8)}",
                "workflow_id": "w",
                "timestamp": 1_760_000_000_000 + 10 * number,
                "user_id": f"u{draw.randrange(20)}",
                "confidence": confidence,
                "data": data,
            }
        )


def _published(count: int, fetch: int) -> Iterator[list[bytes]]:
    """Yield what the threshold agent publishes of each fetch."""
    made = list(_events(count))
    table: dict[bytes, bytes] = {}
    core = PartitionTask(0, 1, 1, LearningConfig(policy("hops"), LEVELS), table.get)
    for begin in range(0, len(made), fetch):
        values: list[bytes | None] = [*made[begin : begin + fetch]]
        offsets, times = list(range(begin, begin + len(values))), [1 << 60] * len(values)
        keys: list[bytes | None] = [None] * len(values)
        batch = RecordBatch("events", 0, begin, begin + len(values), offsets, times, keys, values)
        position, moved = 0, list[bytes]()
        while position < len(values):
            position = core.apply(batch, position)
            commit = core.commit()
            table.update(commit.rows)
            moved += map(msgspec.json.encode, commit.moved)
        yield moved


def _measured(batches: list[list[bytes]]) -> Spent:
    known: dict[Key, NoticeState] = {}
    rows = noticing = 0
    gc.collect()
    for batch in batches:
        begun = time.thread_time_ns()
        for raw in batch:
            encode_threshold(raw)
        between = time.thread_time_ns()
        values = [value for value in map(_decode, batch) if watchable(value)]
        known |= take([(0, value) for value in values], known).known
        rows, noticing = rows + between - begun, noticing + time.thread_time_ns() - between
    return Spent(rows / 1_000, noticing / 1_000)
