"""The connection of a sink agent after an assignment that ended in mid-transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from agents.config import WorkerConfig
from agents.health.metrics import WorkerCounts
from agents.storage.agent import EPISODES
from agents.storage.transactions import SinkSpec, TransactionWriter
from learners.registry import DEFAULT, policy
from processing.config import LearningConfig
from processing.records.sink_lines import SinkBatch
from tests.patience import until_in_loop
from topics.epoch import Epoch


class FakeSink:
    """A sink whose first transaction never ends; then its connection is busy, as psycopg's is."""

    opened = busy_ones = 0

    @staticmethod
    def touched(_lines: Sequence[bytes]) -> list[bytes]:
        return []

    def __init__(self) -> None:
        self.busy = False

    @classmethod
    async def open(cls, _dsn: str) -> Self:
        await asyncio.sleep(0)
        cls.opened += 1
        return cls()

    async def store(self, *_: Any, **_more: Any) -> int:
        self.busy = True
        type(self).busy_ones += 1
        await asyncio.Event().wait()
        return 0

    async def next_offsets(self, *_: Any) -> dict[int, int]:
        await asyncio.sleep(0)
        if self.busy:
            raise psycopg.OperationalError("another command is already in progress")
        return {0: 7}

    async def close(self) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TransactionWriter:
    monkeypatch.setattr(FakeSink, "opened", 0)
    monkeypatch.setattr(FakeSink, "busy_ones", 0)
    sink: Any = FakeSink
    spec = SinkSpec(EPISODES.group, EPISODES.topic, sink, EPISODES.unpack)
    rules = LearningConfig(policy(DEFAULT))
    config = WorkerConfig("a:1", "postgresql://h", "redis://h", tmp_path, rules, "0")
    return TransactionWriter(spec, config, Epoch(1, 1), WorkerCounts(), None, None)


async def refused(_rows: object) -> None:
    """Nothing is refused here."""


def test_a_cancelled_transaction_leaves_its_connection(writer: TransactionWriter) -> None:
    async def run() -> dict[int, int]:
        storing = asyncio.create_task(writer.store(SinkBatch(), {0: 7}, refused))
        await until_in_loop(lambda: FakeSink.busy_ones)
        storing.cancel()
        await asyncio.wait({storing})
        return dict(await writer.next_offsets())

    assert asyncio.run(run()) == {0: 7}
    assert FakeSink.opened == 2


def test_a_broken_connection_is_one_to_retry(writer: TransactionWriter) -> None:
    async def run() -> dict[int, int]:
        sink: Any = await writer._open()
        sink.busy = True
        with pytest.raises(psycopg.OperationalError):  # the worker tries again
            await writer.next_offsets()
        return dict(await writer.next_offsets())

    assert asyncio.run(run()) == {0: 7}
