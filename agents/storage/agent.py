"""The sink agents: store batches in Postgres, with the offsets in the same transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Final

import structlog
from aiokafka.errors import IllegalStateError
from faust.types import TP

from agents.app import App, new_app, register_agent
from agents.config import WorkerConfig
from agents.consumer.batch_intake import BatchIntake
from agents.consumer.lost_records import LostRecords
from agents.dlq_limit_guard import DlqLimitGuard
from agents.environment import Environment
from agents.health.metrics import WorkerCounts
from agents.producer import BatchProducer
from agents.retry_delays import AT_WORK_S, delay_s
from agents.storage.batches import BatchCommitter
from agents.storage.daily_partitions import keep_partitions
from agents.storage.notice_detection import NoticeDetector
from agents.storage.notice_outbox import NoticeOutbox
from agents.storage.transactions import SinkSpec, TransactionWriter
from processing.records.batch import RecordBatch
from processing.records.dlq_limits import Slice
from processing.records.sink_lines import (
    SinkBatch,
    unpack_events,
    unpack_thresholds,
    until_purge,
)
from sinks.connections import POSTGRES_LOST
from sinks.postgres.episodes import EpisodeSink, EventOnlySink
from sinks.postgres.history import HistorySink
from sinks.postgres.progress import TransactionsLost
from topics.catalogue import EPISODES_GROUP, EVENTS, HISTORY_GROUP, THRESHOLDS
from topics.epoch import Epoch

log = structlog.get_logger()

GATHER_BYTES, GATHER_MS = 262_144, 200
"""Rows are not urgent: fetches are fewer and larger."""
LINGER_S: Final = 0.05
"""A batch is stored when it is full or this old: one transaction for many small fetches."""
MAX_DEAD_LETTERS: Final = 1_000
"""A batch ends with the run of records that exceeds it: each dead letter takes a kilobyte, however
small the refused event."""
DRAIN_S: Final = 3.0
"""How long the transaction in flight, and one after it, may take when partitions are revoked."""


EPISODES = SinkSpec(EPISODES_GROUP, EVENTS.name, EpisodeSink, unpack_events, purges=True)
EVENTS_ONLY = SinkSpec(EPISODES_GROUP, EVENTS.name, EventOnlySink, unpack_events, purges=True)
"""Without the outbox of the memory."""
HISTORY = SinkSpec(HISTORY_GROUP, THRESHOLDS.name, HistorySink, unpack_thresholds)


class StorageAgent:
    """All partitions of this worker in one queue: a transaction takes batches of several.

    While Postgres stores one batch, the next is unpacked; transactions never overlap. If Postgres
    lacks what it had confirmed, all partitions begin again where it says.
    """

    def __init__(
        self,
        app: App,
        config: WorkerConfig,
        epoch: Epoch,
        spec: SinkSpec,
        env: Environment,
        producer: BatchProducer,
    ) -> None:
        self._app, self._config, self._epoch, self._spec = app, config, epoch, spec
        self._exit, self._check_s = env.exit, env.tuning.check_offsets_s
        self.counts = WorkerCounts()
        self._producer = producer
        self._guard = DlqLimitGuard(config.limits, config.data, epoch.number)
        self._intake = BatchIntake(
            spec.group, self._handle, LINGER_S,
            on_lost=LostRecords(spec.group, producer, self.counts), on_error=env.exit,
        )  # fmt: skip
        self._storing: asyncio.Task[None] | None = None
        self._started = False
        self._assigned: set[TP] = set()
        self._side_jobs: list[asyncio.Task[None]] = []
        self._going_back: asyncio.Task[None] | None = None
        self._detector: NoticeDetector | None = None
        self._outbox: NoticeOutbox | None = None
        if spec is HISTORY:
            self._detector = NoticeDetector(epoch.number)
            self._outbox = NoticeOutbox(config, epoch, self._producer)
        self._transactions = TransactionWriter(
            spec, config, epoch, self.counts, self._detector, self._outbox
        )
        self._committer = BatchCommitter(
            spec.group, self._producer, self._guard, self._transactions, self.counts, self._done
        )

    async def positions(self, assigned: set[TP], _committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Return the offsets at which the last transaction ended, from Postgres."""
        if not self._started:
            await self._producer.start()
            self._start_side_jobs()
            self._started = True
        await self.drain()
        begin = await self._open_partitions(assigned)
        self._assigned = set(assigned)
        log.info("sink.partitions_assigned", group=self._spec.group, partitions=len(assigned))
        return begin

    def _start_side_jobs(self) -> None:
        jobs = [self._outbox.run() if self._outbox else keep_partitions(self._config.postgres)]
        if self._check_s:
            jobs.append(self._check_offsets(self._check_s))
        self._side_jobs = [asyncio.create_task(job) for job in jobs]
        for task in self._side_jobs:
            task.add_done_callback(self._end_on_error)

    async def _open_partitions(self, assigned: set[TP], *, again: bool = False) -> dict[TP, int]:
        """Open partitions where the last transaction ended. Raises the errors in `POSTGRES_LOST`.

        `again`: they were read further under this assignment.
        """
        stored = await self._transactions.next_offsets()
        begin = {tp: stored.get(tp.partition, 0) for tp in assigned}
        for tp, offset in begin.items():
            (self._guard.restart if again else self._guard.open)(tp, offset)
        if self._detector is not None and self._outbox is not None:
            self._detector.clear()
            self._outbox.set_partitions(tp.partition for tp in assigned)
        consumer = self._app.consumer
        self._intake.open(
            consumer, self._app.consumer_generation_id, begin,
            holes_are_real=self._producer.idempotent,
        )  # fmt: skip
        return begin

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch if it is the next one of its partition."""
        await self._intake.accept(tp, generation, batch)

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition if nothing waits or is in flight."""
        stored = self._storing is None or self._storing.done()
        return self._intake.idle() if stored else {}

    def away(self) -> set[str]:
        """Return Postgres while a batch waits for it."""
        return {"postgres"} if self._transactions.retrying or self._is_going_back() else set()

    async def drain(self) -> None:
        """Finish the transaction in flight; drop waiting batches."""
        self._assigned = set()
        if self._outbox is not None:
            self._outbox.set_partitions(())  # the next owner sends the rest
        going_back, self._going_back = self._going_back, None
        if going_back is not None:
            going_back.cancel()
            await asyncio.wait({going_back})
        await self._finish()
        self._transactions.forget()

    async def _finish(self) -> None:
        if self._transactions.retrying and self._storing is not None:
            self._storing.cancel()  # Postgres is away: nothing can be finished
        await self._intake.close(DRAIN_S)
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
            for job in self._side_jobs:
                job.cancel()
            await self._producer.stop()
        await self._transactions.close()

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> None:
        async for parts, unpacked in self._unpack(batches):
            # Now, while Postgres stores the batch before, not within the transaction.
            unpacked.touched(self._spec.sink.touched)
            try:
                await self._wait_stored()
            except TransactionsLost:
                return  # these batches are fetched again
            self._storing = asyncio.create_task(self._committer.commit(parts, unpacked))
            self._storing.add_done_callback(self._end_on_error)

    async def _unpack(
        self, batches: list[tuple[TP, RecordBatch]]
    ) -> AsyncIterator[tuple[list[Slice], SinkBatch]]:
        """Yield parts to be stored together: all, unless a purge comes or many are refused."""
        spec, parts, unpacked = self._spec, list[Slice](), SinkBatch()
        for _tp, batch in batches:
            taken = begin = 0
            while begin < len(batch):
                run, purge = batch.run(begin), None
                if spec.purges:
                    run, purge = until_purge(batch, run, self._config.rules.operators_key)
                if purge is not None:
                    unpacked.purges.append(purge)
                unpacked.add(batch, run, spec.unpack, spec.sink.encode, spec.group)
                begin = run.stop
                if purge is not None or len(unpacked.dead_letters) >= MAX_DEAD_LETTERS:
                    yield [*parts, Slice(batch, taken, begin)], unpacked
                    parts, unpacked, taken = [], SinkBatch(), begin
                await asyncio.sleep(0)  # let the transaction in flight proceed
            parts.append(Slice(batch, taken, begin))
        yield parts, unpacked

    async def _wait_stored(self) -> None:
        """Wait for the transaction in flight."""
        if self._storing is not None:
            await self._storing

    def _done(self, partition: int, end: int) -> None:
        self._app.consumer.done(TP(self._spec.topic, partition), end)

    def _end_on_error(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, TransactionsLost):
            self._go_back(error)
        else:
            self._exit("sink", error)

    async def _check_offsets(self, every_s: float) -> None:
        """Notice lost transactions also while there is nothing to store, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            if not self._is_going_back():
                try:
                    await self._transactions.check()
                except TransactionsLost as error:
                    self._go_back(error)

    def _is_going_back(self) -> bool:
        return self._going_back is not None and not self._going_back.done()

    def _go_back(self, lost: TransactionsLost) -> None:
        if self._is_going_back() or not self._assigned:
            return
        log.warning(
            "sink.transactions_lost", group=self._spec.group, known=lost.known, stored=lost.stored
        )
        self._going_back = asyncio.create_task(self._begin_again())
        self._going_back.add_done_callback(self._end_on_error)

    async def _begin_again(self) -> None:
        """Open the partitions again where Postgres says, under the same assignment."""
        await self._finish()
        for attempt in count():
            if not self._assigned:
                return
            try:
                begin = await self._open_partitions(self._assigned, again=True)
                break
            except POSTGRES_LOST:
                await asyncio.sleep(delay_s(AT_WORK_S, attempt))
        for tp, offset in begin.items():
            self._done(tp.partition, offset)
        try:
            await self._app.consumer.seek_wait(begin)
            await self._intake.skip_lost()
        except IllegalStateError as error:  # the assignment is gone: the next one is on its way
            log.info("assignment.superseded", reason=str(error))


def sink_app(config: WorkerConfig, epoch: Epoch, spec: SinkSpec) -> App:
    """Return the app of one sink agent."""
    app = new_app(spec.group, config)
    app.gather_bytes, app.gather_ms = GATHER_BYTES, GATHER_MS
    agent = StorageAgent(app, config, epoch, spec, Environment(), BatchProducer(config.kafka))
    register_agent(app, agent, spec.topic)
    return app
