"""The sink agents: batches to Postgres, with the offsets in the batch's own transaction."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import psycopg
import structlog
from faust.types import TP

from agents.app import App, new_app, register_agent
from agents.config import WorkerConfig
from agents.consumer.partition_queue import PartitionQueue, queue_bytes_per_partition
from agents.consumer.sequencer import FetchSequencer
from agents.consumer.source import GroupSource
from agents.dlq_limit_guard import DlqLimitGuard
from agents.fatal import exit_fatally
from agents.health.metrics import WorkerCounts, started
from agents.producer import BatchProducer
from agents.storage.batches import store_batch
from agents.storage.notice_detection import NoticeDetector
from agents.storage.notice_outbox import NoticeOutbox
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter
from processing.records.dlq_limits import RefusalState, Slice, extent
from processing.records.sink_lines import SinkBatch, Unpack, unpack_events, unpack_thresholds
from sinks.connections import PostgresUnreachable, connect_postgres
from sinks.postgres.batch_writer import MOST_SEARCHED, BatchWriter, OnRefused, TooManyRejectedRows
from sinks.postgres.episodes import EpisodeSink
from sinks.postgres.history import HistorySink
from sinks.postgres.partitions import ensure_partitions
from sinks.postgres.permissions import REFUSED, PermissionMissing
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
PIECE: Final = MOST_SEARCHED // 3
"""Lines stored together where Postgres refuses some of more: a record holds up to 1,000."""
DRAIN_S: Final = 3.0
"""How long the transaction in flight, and one after it, may take when partitions are given up."""
PARTITIONS_INTERVAL_S: Final = 3600.0
BACKOFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class SinkSpec:
    """Which topic goes into which table."""

    group: str
    topic: str
    sink: type[BatchWriter]
    unpack: Unpack


EPISODES = SinkSpec(EPISODES_GROUP, EVENTS.name, EpisodeSink, unpack_events)
HISTORY = SinkSpec(HISTORY_GROUP, THRESHOLDS.name, HistorySink, unpack_thresholds)


_AWAY: Final = (
    PostgresUnreachable,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ReadOnlySqlTransaction,
)
"""What a batch waits for: Postgres itself, or a permission that an administrator gives back."""


class StorageAgent:
    """All partitions of this worker in one lane: one transaction takes from several.

    While Postgres takes one batch, the next is unpacked; transactions stay one after the other.
    """

    def __init__(self, app: App, config: WorkerConfig, epoch: Epoch, plan: SinkSpec) -> None:
        self._app, self._config, self._epoch, self._plan = app, config, epoch, plan
        self.counts = WorkerCounts()
        self._producer = BatchProducer(config.kafka)
        self._guard = DlqLimitGuard(config.limits, config.data, epoch.number)
        self._sink: BatchWriter | None = None
        self._lane: PartitionQueue | None = None
        self._intake: FetchSequencer[TP] | None = None
        self._generation = -1
        self._storing: asyncio.Task[None] | None = None
        self._parts: Sequence[Slice] = ()
        self._unpacked = SinkBatch()
        self._letters: list[DeadLetter] = []
        self._checked: Mapping[int, RefusalState] = {}
        self._started = self._waits = False
        self._beside: asyncio.Task[None] | None = None
        noticing = plan is HISTORY
        self._noticer = NoticeDetector(epoch.number) if noticing else None
        self._teller = NoticeOutbox(config, epoch, self._producer) if noticing else None

    async def positions(self, assigned: set[TP], _committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Begin where Postgres says that the last transaction ended."""
        if not self._started:
            await self._producer.start()
            beside = self._teller.run() if self._teller else self._keep_partitions()
            self._beside = asyncio.create_task(beside)
            self._beside.add_done_callback(_end_on_error)
            self._started = True
        await self.drain()
        group, real = self._plan.group, self._producer.idempotent
        sink = await self._open_sink()
        stored = await sink.next_offsets(self._plan.topic, self._epoch.number)
        begin = {tp: stored.get(tp.partition, 0) for tp in assigned}
        lose = self.counts.lose
        self._intake = FetchSequencer(
            GroupSource(self._app), group, begin, holes_are_real=real, on_lost=lose
        )
        for tp, offset in begin.items():
            self._guard.open(tp, offset)
        if self._noticer is not None and self._teller is not None:
            self._noticer.forget()
            self._teller.own(tp.partition for tp in assigned)
        self._generation = self._app.consumer_generation_id
        hold, share = self._app.consumer.hold, queue_bytes_per_partition(len(assigned))
        self._lane = PartitionQueue(group, self._handle, LINGER_S, hold=hold, share=share)
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
        return {"postgres"} if self._waits else set()

    async def drain(self) -> None:
        """Finish the transaction in flight; drop what waits."""
        if self._teller is not None:
            self._teller.own(())  # who takes them up sends what is left
        lane, self._lane = self._lane, None
        if self._waits and self._storing is not None:
            self._storing.cancel()  # Postgres is away: there is nothing to finish
        if lane is not None:
            await lane.close(DRAIN_S)
        storing, self._storing = self._storing, None
        if storing is not None:
            await asyncio.wait({storing}, timeout=DRAIN_S)
            storing.cancel()  # else it is rolled back
            await asyncio.wait({storing})
        self._waits = False

    async def close(self) -> None:
        """Finish the transaction in flight and disconnect."""
        await self.drain()
        if self._started:
            if self._beside is not None:
                self._beside.cancel()
            await self._producer.stop()
        await self._close_sink()

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> None:
        async for parts, unpacked in self._unpack(batches):
            await self._stored()
            self._storing = asyncio.create_task(self._store(parts, unpacked))
            self._storing.add_done_callback(_end_on_error)

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

    async def _store(
        self, parts: Sequence[Slice], unpacked: SinkBatch, sent: Sequence[DeadLetter] = ()
    ) -> None:
        """Store parts of batches; `sent`: dead letters of theirs, and perhaps of others."""
        begun = started()
        self._checked = self._guard.check(parts, sent)
        self._parts, self._letters, self._unpacked = parts, [*sent], unpacked
        try:
            await store_batch(parts, unpacked, self._plan.group, self)
        except TooManyRejectedRows:
            # One transaction would take longer than a worker may stand still, and again after it.
            for piece in unpacked.pieces(parts, PIECE):
                await self._store(*piece, unpacked.dead_letters)
            return
        self._guard.passed(self._checked)
        stored = extent(parts)
        self.counts.took(stored, len(unpacked.lines))
        self.counts.took_effect(stored, begun)

    async def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Send dead letters, unless too much is refused; see `StoreOutlets`."""
        self._letters += letters
        self._checked = self._guard.check(self._parts, self._letters)
        await self._producer.send_dead_letters(letters)
        self.counts.dead_letters += len(letters)

    def done(self, partition: int, end: int) -> None:
        """Report what took effect; see `StoreOutlets`."""
        self._app.consumer.done(TP(self._plan.topic, partition), end)

    async def store(
        self, lines: Sequence[bytes], offsets: Mapping[int, int], on_refused: OnRefused
    ) -> None:
        """Store one batch; while Postgres is away, wait: the lane fills and fetching stops."""
        attempt, noticer = 0, self._noticer
        first = partial(noticer.look, self._unpacked, offsets) if noticer else None
        while True:
            try:
                sink = await self._open_sink()
                stored = await sink.store(
                    lines,
                    offsets,
                    topic=self._plan.topic,
                    epoch=self._epoch.number,
                    on_refused=on_refused,
                    first=first,
                )
            except _AWAY as error:
                if attempt == 0:
                    log.warning("postgres.away", error=self._why(error))
                self._waits = True
                self.counts.postgres_failures += 1
                await self._close_sink()
                await asyncio.sleep(BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)])
                attempt += 1
            else:
                if attempt:
                    log.info("postgres.back", attempts=attempt)
                self.counts.rows += stored
                self._waits = False
                self._committed(offsets)
                return

    def _why(self, error: Exception) -> str:
        if isinstance(error, REFUSED):
            return str(PermissionMissing(self._config.postgres, error))
        return " ".join(str(error).split()) or type(error).__name__

    def _committed(self, offsets: Mapping[int, int]) -> None:
        if self._noticer is None or self._teller is None:
            return
        self._noticer.committed(offsets)
        self.counts.notices += self._noticer.found
        if self._noticer.found:
            self._teller.wake()

    async def _open_sink(self) -> BatchWriter:
        if self._sink is None:
            self._sink = await self._plan.sink.open(self._config.postgres)
        return self._sink

    async def _close_sink(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()

    async def _keep_partitions(self) -> None:
        """Create the daily partitions ahead of time, never while storing."""
        while True:
            await asyncio.sleep(PARTITIONS_INTERVAL_S)
            try:
                async with await connect_postgres(self._config.postgres) as connection:
                    await ensure_partitions(connection, datetime.datetime.now(datetime.UTC).date())
            except (PostgresUnreachable, psycopg.Error) as error:
                # Their events go to the default partition until the next round.
                log.warning("sink.partitions", error=self._why(error))


def _end_on_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        exit_fatally("sink", error)


def sink_app(config: WorkerConfig, epoch: Epoch, plan: SinkSpec) -> App:
    """Return the app of one sink agent."""
    app = new_app(plan.group, config)
    app.gather_bytes, app.gather_ms = GATHER_BYTES, GATHER_MS
    register_agent(app, StorageAgent(app, config, epoch, plan), plan.topic)
    return app
