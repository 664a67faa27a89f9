"""The sink agents: batches to Postgres, with the offsets in the batch's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

import structlog
from faust.types import TP

from agents.app import App, new_app, register_agent
from agents.config import WorkerConfig
from agents.consumer.partition_queue import PartitionQueue, queue_bytes_per_partition
from agents.consumer.sequencer import FetchSequencer
from agents.dlq_limit_guard import DlqLimitGuard
from agents.environment import Environment
from agents.health.metrics import WorkerCounts
from agents.producer import BatchProducer
from agents.storage.batches import BatchCommitter
from agents.storage.daily_partitions import keep_partitions
from agents.storage.notice_detection import NoticeDetector
from agents.storage.notice_outbox import NoticeOutbox
from agents.storage.transactions import SinkSpec, TransactionWriter
from processing.records.batch import RecordBatch
from processing.records.dlq_limits import Slice
from processing.records.sink_lines import SinkBatch, unpack_events, unpack_thresholds
from sinks.postgres.episodes import EpisodeSink
from sinks.postgres.history import HistorySink
from topics.catalogue import EPISODES_GROUP, EVENTS, HISTORY_GROUP, THRESHOLDS
from topics.epoch import Epoch

log = structlog.get_logger()

GATHER_BYTES, GATHER_MS = 262_144, 200
"""Nobody waits for a row: fetches come less often, and larger."""
LINGER_S: Final = 0.05
"""A batch is stored when it is full or this old: one transaction for many small fetches."""
MOST_LETTERS: Final = 1_000
"""A batch ends with the run of records that brings so many dead letters: each takes a kilobyte,
whatever was refused."""
DRAIN_S: Final = 3.0
"""How long the transaction in flight, and one after it, may take when partitions are given up."""


EPISODES = SinkSpec(EPISODES_GROUP, EVENTS.name, EpisodeSink, unpack_events)
HISTORY = SinkSpec(HISTORY_GROUP, THRESHOLDS.name, HistorySink, unpack_thresholds)


class StorageAgent:
    """All partitions of this worker in one lane: one transaction takes from several.

    While Postgres takes one batch, the next is unpacked; transactions stay one after the other.
    """

    def __init__(
        self,
        app: App,
        config: WorkerConfig,
        epoch: Epoch,
        plan: SinkSpec,
        env: Environment,
        producer: BatchProducer,
    ) -> None:
        self._app, self._config, self._epoch, self._plan = app, config, epoch, plan
        self._exit = env.exit
        self.counts = WorkerCounts()
        self._producer = producer
        self._guard = DlqLimitGuard(config.limits, config.data, epoch.number)
        self._lane: PartitionQueue | None = None
        self._intake: FetchSequencer[TP] | None = None
        self._generation = -1
        self._storing: asyncio.Task[None] | None = None
        self._started = False
        self._beside: asyncio.Task[None] | None = None
        self._detector: NoticeDetector | None = None
        self._outbox: NoticeOutbox | None = None
        if plan is HISTORY:
            self._detector = NoticeDetector(epoch.number)
            self._outbox = NoticeOutbox(config, epoch, self._producer)
        self._transactions = TransactionWriter(
            plan, config, epoch, self.counts, self._detector, self._outbox
        )
        self._committer = BatchCommitter(
            plan.group, self._producer, self._guard, self._transactions, self.counts, self._done
        )

    async def positions(self, assigned: set[TP], _committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Begin where Postgres says that the last transaction ended."""
        if not self._started:
            await self._producer.start()
            beside = self._outbox.run() if self._outbox else keep_partitions(self._config.postgres)
            self._beside = asyncio.create_task(beside)
            self._beside.add_done_callback(self._end_on_error)
            self._started = True
        await self.drain()
        group, real = self._plan.group, self._producer.idempotent
        stored = await self._transactions.next_offsets()
        begin = {tp: stored.get(tp.partition, 0) for tp in assigned}
        lose = self.counts.lose
        self._intake = FetchSequencer(
            self._app.consumer, group, begin, holes_are_real=real, on_lost=lose
        )
        for tp, offset in begin.items():
            self._guard.open(tp, offset)
        if self._detector is not None and self._outbox is not None:
            self._detector.forget()
            self._outbox.own(tp.partition for tp in assigned)
        self._generation = self._app.consumer_generation_id
        hold, share = self._app.consumer.hold, queue_bytes_per_partition(len(assigned))
        self._lane = PartitionQueue(
            group, self._handle, LINGER_S, hold=hold, share=share, on_error=self._exit
        )
        log.info("sink.opened", group=group, partitions=len(assigned))
        return begin

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch if it is the next one of its partition."""
        lane, intake = self._lane, self._intake
        if lane is None or intake is None or generation != self._generation:
            return
        if await intake.admit(tp, batch):
            await lane.put(tp, batch)

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition while nothing waits or works."""
        if self._lane is None or self._intake is None or not self._lane.idle:
            return {}
        stored = self._storing is None or self._storing.done()
        return self._intake.positions.copy() if stored else {}

    def away(self) -> set[str]:
        """Return Postgres while a batch waits for it."""
        return {"postgres"} if self._transactions.retrying else set()

    async def drain(self) -> None:
        """Finish the transaction in flight; drop what waits."""
        if self._outbox is not None:
            self._outbox.own(())  # who takes them up sends what is left
        lane, self._lane = self._lane, None
        if self._transactions.retrying and self._storing is not None:
            self._storing.cancel()  # Postgres is away: there is nothing to finish
        if lane is not None:
            await lane.close(DRAIN_S)
        storing, self._storing = self._storing, None
        if storing is not None:
            await asyncio.wait({storing}, timeout=DRAIN_S)
            storing.cancel()  # else it is rolled back
            await asyncio.wait({storing})
        self._transactions.retrying = False

    async def close(self) -> None:
        """Finish the transaction in flight and disconnect."""
        await self.drain()
        if self._started:
            if self._beside is not None:
                self._beside.cancel()
            await self._producer.stop()
        await self._transactions.close()

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> None:
        async for parts, unpacked in self._unpack(batches):
            await self._stored()
            self._storing = asyncio.create_task(self._committer.commit(parts, unpacked))
            self._storing.add_done_callback(self._end_on_error)

    async def _unpack(
        self, batches: list[tuple[TP, RecordBatch]]
    ) -> AsyncIterator[tuple[list[Slice], SinkBatch]]:
        """Yield what is stored together: all of it, but where very much is refused less."""
        plan, parts, unpacked = self._plan, list[Slice](), SinkBatch()
        for _tp, batch in batches:
            taken = begin = 0
            while begin < len(batch):
                run = batch.run(begin)
                unpacked.add(batch, run, plan.unpack, plan.sink.encode, plan.group)
                begin = run.stop
                if len(unpacked.dead_letters) >= MOST_LETTERS:
                    yield [*parts, Slice(batch, taken, begin)], unpacked
                    parts, unpacked, taken = [], SinkBatch(), begin
                await asyncio.sleep(0)  # in between Postgres is served
            parts.append(Slice(batch, taken, begin))
        yield parts, unpacked

    async def _stored(self) -> None:
        """Wait for the transaction in flight."""
        if self._storing is not None:
            await self._storing

    def _done(self, partition: int, end: int) -> None:
        self._app.consumer.done(TP(self._plan.topic, partition), end)

    def _end_on_error(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._exit("sink", error)


def sink_app(config: WorkerConfig, epoch: Epoch, plan: SinkSpec) -> App:
    """Return the app of one sink agent."""
    app = new_app(plan.group, config)
    app.gather_bytes, app.gather_ms = GATHER_BYTES, GATHER_MS
    agent = StorageAgent(app, config, epoch, plan, Environment(), BatchProducer(config.kafka))
    register_agent(app, agent, plan.topic)
    return app
