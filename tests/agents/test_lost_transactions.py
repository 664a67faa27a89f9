"""Agents that store in Postgres, when a replica takes over that lacks the last transactions.

Postgres is real; the log is a list, read as Faust's consumer reads a partition.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from faust.types import TP
from structlog.testing import capture_logs

from agents.config import WorkerConfig
from agents.environment import Environment, Tuning
from agents.memory.embedding import GuardedEmbedder
from agents.memory.outbox_watch import OutboxWatch
from agents.memory.worker import MemoryWorker
from agents.storage.agent import EPISODES, HISTORY, StorageAgent
from agents.storage.transactions import SinkSpec
from processing.records.batch import RecordBatch, empty_batch
from processing.records.dead_letters import DeadLetter
from sinks.connections import POSTGRES_LOST
from sinks.postgres.migrate import migrate
from tests.memory.stored_runs import AT, DAY_MS, WordEmbedder, event, rows, run, store
from tests.patience import PATIENCE_S
from tests.standbys import PostgresPair
from topics.epoch import Epoch

pytestmark = pytest.mark.integration

EPOCH = 3
CHECK_S = 0.1
REPLICATED, LOST, AFTER = 4, 12, 20
"""Ends of the records that both servers have, that the primary alone has, and of all."""


def an_event(number: int) -> bytes:
    return orjson.dumps(event("a", f"w{number}", number))


def a_threshold(number: int) -> bytes:
    return orjson.dumps(
        {
            "tenant": "a", "workflow_type": "refund", "path": "workflow_type=refund",
            "speculate": 0.5, "suggest": 0.4, "epoch": EPOCH, "offset": number,
            "outcomes": number, "learner": "td", "at": 1_750_000_000_000 + number,
        }
    )  # fmt: skip


class Producer:
    """Nothing is refused here, and notices are not looked at."""

    idempotent = True

    def __init__(self) -> None:
        self.lost: list[DeadLetter] = []
        """Dead letters that name what retention deleted."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send_records(self, *_: object) -> None: ...

    async def send_dead_letters(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            assert letter.reason.startswith("retention deleted"), letter.reason
            self.lost.append(letter)


class Reading:
    """The log of one partition, and its consumer, two records a fetch."""

    def __init__(self, spec: SinkSpec) -> None:
        self.tp = TP(spec.topic, 0)
        self.values: list[bytes] = []
        self.begin = self.position = self.reached = 0
        self.sought: list[int] = []

    async def earliest_offsets(self, *places: TP) -> Mapping[TP, int]:
        return dict.fromkeys(places, self.begin)

    async def seek_wait(self, positions: Mapping[TP, int]) -> None:
        self.position = positions[self.tp]
        self.sought.append(self.position)

    def pause(self, tp: TP, paused: bool) -> None:
        """Nothing is large enough."""

    def done(self, tp: TP, end: int) -> None:
        self.reached = end

    async def feed(self, agent: StorageAgent) -> None:
        while True:
            begin = max(self.position, self.begin)
            if some := self.values[begin : begin + 2]:
                self.position = end = begin + len(some)
                offsets = [*range(begin, end)]
                count = len(some)
                batch = RecordBatch(
                    *self.tp, begin, end, offsets, [AT + DAY_MS] * count, [None] * count, some
                )
                await agent.accept(self.tp, 1, batch)
            await asyncio.sleep(0.005)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - nothing is notified of it
            await asyncio.sleep(0.02)


class Sinking:
    """A sink agent that reads a log and stores it in a pair of servers."""

    def __init__(self, config: WorkerConfig, pair: PostgresPair, spec: SinkSpec) -> None:
        self.pair, self.reading = pair, Reading(spec)
        self.record = an_event if spec is EPISODES else a_threshold
        table = "episodic_events" if spec is EPISODES else "threshold_history"
        self._count = f"SELECT count(*) FROM {table}"
        self.failed: list[BaseException] = []
        app: Any = self
        self.consumer, self.consumer_generation_id = self.reading, 1
        env = Environment(
            exit=lambda _where, error: self.failed.append(error),
            tuning=Tuning(check_offsets_s=CHECK_S),
        )
        self.producer: Any = Producer()
        own = dataclasses.replace(config, postgres=pair.url)
        self.agent = StorageAgent(app, own, Epoch(EPOCH, 1), spec, env, self.producer)

    async def opened_again(self) -> dict[TP, int]:
        """Open the partition as the app does: again while a lost connection is found."""
        while True:
            with suppress(*POSTGRES_LOST):
                return dict(await self.agent.positions({self.reading.tp}, {}))
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await migrate(self.pair.url)
        await self.agent.positions({self.reading.tp}, {})
        feeding = asyncio.create_task(self.reading.feed(self.agent))
        feeding.add_done_callback(self._note)
        try:
            yield
        finally:
            feeding.cancel()
            await self.agent.close()
        assert not self.failed

    def _note(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed.append(error)

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(lambda: bool(self.failed) or condition())
        assert not self.failed

    async def emit(self, end: int) -> None:
        """Append records up to `end`, and wait until they are stored."""
        self.reading.values += map(self.record, range(len(self.reading.values), end))
        await self.until(lambda: self.reading.reached == end)

    async def store_some_on_one(self) -> None:
        """Store records of which the replica has only the first."""
        await self.emit(REPLICATED)
        await asyncio.to_thread(self.pair.wait_replicated)
        await asyncio.to_thread(self.pair.cut)
        await self.emit(LOST)

    async def lose_some(self) -> None:
        """Let a replica take over that has only the first records."""
        await self.store_some_on_one()
        await asyncio.to_thread(self.pair.fail_over)

    def stored(self) -> int:
        return int(self.pair.replica.ask(self._count, "headstart"))


@pytest.mark.parametrize("spec", [EPISODES, HISTORY], ids=["episodes", "history"])
def test_a_sink_goes_back_to_where_the_new_primary_is(
    worker_config: WorkerConfig, postgres_pair: PostgresPair, spec: SinkSpec
) -> None:
    async def go() -> None:
        sink = Sinking(worker_config, postgres_pair, spec)
        async with sink.running():
            await sink.lose_some()
            await sink.emit(AFTER)
            assert REPLICATED in sink.reading.sought
            assert sink.stored() == AFTER
            assert not sink.agent.away()

    with capture_logs() as logged:
        asyncio.run(go())
    (lost,) = [each for each in logged if each["event"] == "sink.transactions_lost"]
    assert (lost["known"], lost["stored"]) == ({0: LOST}, {0: REPLICATED})


def test_a_sink_goes_back_although_nothing_more_is_emitted(
    worker_config: WorkerConfig, postgres_pair: PostgresPair
) -> None:
    async def go() -> None:
        sink = Sinking(worker_config, postgres_pair, EPISODES)
        async with sink.running():
            await sink.lose_some()
            await sink.until(lambda: sink.reading.sought == [REPLICATED])
            await sink.until(lambda: sink.reading.reached == LOST)
            assert sink.stored() == LOST

    asyncio.run(go())


def test_records_that_the_log_no_longer_has_are_counted_as_lost(
    worker_config: WorkerConfig, postgres_pair: PostgresPair
) -> None:
    kept = LOST - 2

    async def go() -> None:
        sink = Sinking(worker_config, postgres_pair, EPISODES)
        async with sink.running():
            await sink.store_some_on_one()
            sink.reading.begin = kept  # retention
            await asyncio.to_thread(postgres_pair.fail_over)
            await sink.until(lambda: sink.agent.counts.lost > 0)
            await sink.until(lambda: sink.reading.reached == LOST)
            assert sink.agent.counts.lost == kept - REPLICATED
            assert sink.stored() == REPLICATED + LOST - kept

    with capture_logs() as logged:
        asyncio.run(go())
    (alarm,) = [each for each in logged if each["event"] == "records.lost_to_retention"]
    assert (alarm["log_level"], alarm["lost"]) == ("error", kept - REPLICATED)


@pytest.mark.parametrize("spec", [EPISODES, HISTORY], ids=["episodes", "history"])
def test_lost_records_are_reported_once_although_nothing_follows_them(
    worker_config: WorkerConfig, postgres_pair: PostgresPair, spec: SinkSpec
) -> None:
    async def started_again() -> int:
        sink = Sinking(worker_config, postgres_pair, spec)
        reading = sink.reading
        reading.begin = LOST  # retention
        async with sink.running():
            empty = empty_batch(*reading.tp, LOST)
            await sink.agent.accept(reading.tp, 1, empty)  # as the consumer does
            await sink.until(lambda: reading.tp in sink.agent.idle())
            assert sink.agent.idle() == {reading.tp: LOST}
        return len(sink.producer.lost)

    async def go() -> None:
        sink = Sinking(worker_config, postgres_pair, spec)
        async with sink.running():
            await sink.emit(REPLICATED)
        assert await started_again() == 1
        assert await started_again() == 0

    asyncio.run(go())


def test_a_revoked_partition_is_not_opened_again(
    worker_config: WorkerConfig, postgres_pair: PostgresPair
) -> None:
    async def go() -> None:
        sink = Sinking(worker_config, postgres_pair, EPISODES)
        async with sink.running():
            await sink.store_some_on_one()
            await asyncio.to_thread(postgres_pair.primary.kill)  # it goes back as soon as it can
            await sink.agent.drain()
            await asyncio.to_thread(postgres_pair.promote)
            await asyncio.sleep(10 * CHECK_S)
            assert sink.reading.sought == []
            assert sink.agent.idle() == {}
            begin = await sink.opened_again()
            assert begin == {sink.reading.tp: REPLICATED}

    asyncio.run(go())


def test_episodes_follow_the_events_of_the_new_primary(postgres_pair: PostgresPair) -> None:
    pair, half, whole = postgres_pair, 20, 40
    runs = [run("a", f"run-{number}", f"query {number}") for number in range(whole)]
    episodes = "SELECT count(*) FROM episodes"

    async def go() -> None:
        await migrate(pair.url)
        worker = MemoryWorker(
            pair.url, GuardedEmbedder(WordEmbedder()), OutboxWatch(pair.url), debounce_s=0.0
        )
        working = asyncio.create_task(worker.run())
        await store(pair.url, *runs[:half])
        await until(lambda: pair.primary.ask(episodes, "headstart") == half)
        await asyncio.to_thread(pair.wait_replicated)
        await asyncio.to_thread(pair.cut)
        await store(pair.url, *runs[half:])
        await until(lambda: pair.primary.ask(episodes, "headstart") == whole)
        await asyncio.to_thread(pair.fail_over)
        await store(pair.url, *runs[half:])  # as a sink that has gone back
        await until(lambda: pair.replica.ask(episodes, "headstart") == whole)
        worker.stop()
        await working

    asyncio.run(go())
    assert rows(pair.replica.dsn, "SELECT * FROM episode_outbox") == []
    (vectors,) = rows(pair.replica.dsn, "SELECT count(*) FROM episode_vectors WHERE v IS NOT NULL")
    assert vectors == (whole,)
