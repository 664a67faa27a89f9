"""A batch that Postgres refuses as a whole is stored in pieces, with the outbox of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from faust.types import TP

from agents.config import WorkerConfig
from agents.dlq_limit_guard import DlqLimitGuard
from agents.health.metrics import WorkerCounts
from agents.storage import batches, purging
from agents.storage.agent import EPISODES
from agents.storage.batches import BatchCommitter
from agents.storage.transactions import TransactionWriter
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter
from processing.records.decode import Rejection
from processing.records.dlq_limits import Slice
from processing.records.sink_lines import SinkBatch
from sinks.postgres import batch_writer
from sinks.postgres.episodes import EpisodeSink, touched_runs
from tests.memory.stored_runs import event, rows
from topics.epoch import Epoch

pytestmark = pytest.mark.integration

EPOCH = Epoch(3, 1)
BAD = 3
Unpacked = Sequence[tuple[Sequence[bytes], Sequence[Rejection]]]


def as_it_came(values: Sequence[bytes | None], _times: Sequence[int]) -> Unpacked:
    """Take what the contract would refuse, as Postgres does."""
    return [((value or b"",), ()) for value in values]


def log_of(events: Sequence[dict[str, Any]]) -> RecordBatch:
    count = len(events)
    values = [orjson.dumps(each) for each in events]
    return RecordBatch(
        EPISODES.topic, 0, 0, count, [*range(count)], [1] * count, [b"k"] * count, [*values]
    )


class Letters:
    """Takes dead letters."""

    def __init__(self) -> None:
        self.sent: list[DeadLetter] = []

    async def send_dead_letters(self, letters: Iterable[DeadLetter]) -> None:
        self.sent += letters


def test_the_outbox_of_each_piece_is_computed_once(
    migrated: str, worker_config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = list[int]()

    def counted(lines: Sequence[bytes]) -> list[bytes]:
        computed.append(len(lines))
        return touched_runs(lines)

    monkeypatch.setattr(EpisodeSink, "touched", staticmethod(counted))
    monkeypatch.setattr(purging, "touched_runs", counted)
    monkeypatch.setattr(batch_writer, "MOST_SEARCHED", 4)
    monkeypatch.setattr(batches, "PIECE", 2)
    events = [event("a", f"w{number}", number) for number in range(6)]
    events[BAD]["event_type"] = "unheard_of"
    log, unpacked, letters = log_of(events), SinkBatch(), Letters()
    unpacked.add(log, range(len(log)), as_it_came, EpisodeSink.encode, EPISODES.group)
    config = replace(worker_config, postgres=migrated)
    guard = DlqLimitGuard(config.limits, config.data, EPOCH.number)
    guard.open(TP(EPISODES.topic, 0), 0)
    counts, reached = WorkerCounts(), list[tuple[int, int]]()
    producer: Any = letters

    def done(partition: int, end: int) -> None:
        reached.append((partition, end))

    async def store() -> None:
        writer = TransactionWriter(EPISODES, config, EPOCH, counts, None, None)
        try:
            committer = BatchCommitter(EPISODES.group, producer, guard, writer, counts, done)
            await committer.commit([Slice(log, 0, len(log))], unpacked)
        finally:
            await writer.close()

    asyncio.run(store())
    # The batch, its pieces of which the last is empty, and what was stored beside the refused row.
    assert computed == [6, 2, 2, 1, 2, 0]
    assert reached == [(0, 2), (0, 4), (0, 6), (0, 6)]
    noted = rows(migrated, "SELECT workflow_id FROM episode_outbox ORDER BY 1")
    assert [name for (name,) in noted] == [f"w{n}" for n in range(6) if n != BAD]
    assert [letter.value for letter in letters.sent] == [log.values[BAD]]
