"""The sink agents: batches to Postgres, with the offsets in the batch's own transaction."""

from __future__ import annotations

import asyncio
import datetime
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg
import structlog
from faust.types import TP

from agents.app import App, WorkerConfig, new_app, register_agent
from agents.holes import WAIT_S, Holes
from agents.lane import Lane
from agents.producer import BatchProducer
from agents.refusals import RefusalGuard
from processing.records import RecordBatch
from processing.refusals import Slice
from processing.storing import Unpack, Unpacked, unpack_events, unpack_thresholds
from sinks.connections import PostgresUnreachable, connect_postgres
from sinks.episodes import EpisodeSink
from sinks.history import HistorySink
from sinks.partitions import ensure_partitions
from sinks.staging import OnRefused, Refusal, StagedSink
from topics.catalogue import EPISODES_GROUP, EVENTS, HISTORY_GROUP, THRESHOLDS
from topics.epoch import Epoch

log = structlog.get_logger()

LINGER_S = 0.05
"""A batch is stored when it is full or this old: one transaction for many small fetches."""
PARTITIONS_INTERVAL_S = 3600.0
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class SinkPlan:
    """Which topic goes into which table."""

    group: str
    topic: str
    sink: type[StagedSink]
    unpack: Unpack


EPISODES = SinkPlan(EPISODES_GROUP, EVENTS.name, EpisodeSink, unpack_events)
HISTORY = SinkPlan(HISTORY_GROUP, THRESHOLDS.name, HistorySink, unpack_thresholds)


class SinkRuntime:
    """All partitions of this worker in one lane: one transaction takes from several."""

    def __init__(self, app: App, config: WorkerConfig, epoch: Epoch, plan: SinkPlan) -> None:
        self._app, self._config, self._epoch, self._plan = app, config, epoch, plan
        self._producer = BatchProducer(config.kafka)
        self._holes = Holes()
        self._guard = RefusalGuard(config.limits, config.data, epoch.number)
        self._sink: StagedSink | None = None
        self._lane: Lane | None = None
        self._generation = -1
        self._expected: dict[TP, int] = {}
        self._started = False
        self._partitions: asyncio.Task[None] | None = None

    async def positions(self, assigned: set[TP], _committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Begin where Postgres says that the last transaction ended."""
        if not self._started:
            await self._producer.start()
            if self._plan is EPISODES:
                self._partitions = asyncio.create_task(self._keep_partitions())
            self._started = True
        await self.drain()
        sink = await self._open_sink()
        stored = await sink.next_offsets(self._plan.topic, self._epoch.number)
        self._expected = {tp: stored.get(tp.partition, 0) for tp in assigned}
        for tp, begin in self._expected.items():
            self._guard.open(tp, begin)
        self._generation = self._app.consumer_generation_id
        self._lane = Lane(self._plan.group, self._handle, LINGER_S)
        log.info("sink.opened", group=self._plan.group, partitions=len(assigned))
        return self._expected.copy()

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch; drop it where it is of an older assignment, seek back over a gap."""
        if self._lane is None or generation != self._generation or tp not in self._expected:
            return
        expected = self._expected[tp]
        if batch.begin > expected:
            earliest = (await self._app.consumer.earliest_offsets(tp))[tp]
            if earliest > expected:
                log.error("sink.lost", partition=tp.partition, begin=expected, end=earliest)
                self._expected[tp] = expected = earliest
            if batch.begin > expected:
                log.warning("sink.gap", partition=tp.partition, at=expected, got=batch.begin)
                await self._app.consumer.seek_wait({tp: expected})
                return
        if not self._producer.idempotent and self._holes.doubtful(tp, batch):
            await asyncio.sleep(WAIT_S)
            await self._app.consumer.seek_wait({tp: expected})
            return
        if batch.end > expected:
            self._expected[tp] = batch.end
            await self._lane.put(tp, batch)

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition while nothing waits or works."""
        return self._expected.copy() if self._lane is not None and self._lane.idle else {}

    async def drain(self) -> None:
        """Finish the transaction in flight; drop what waits."""
        lane, self._lane = self._lane, None
        if lane is not None:
            await lane.close()

    async def close(self) -> None:
        """Finish the transaction in flight and disconnect."""
        await self.drain()
        if self._started:
            if self._partitions is not None:
                self._partitions.cancel()
            await self._producer.stop()
        await self._close_sink()

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> None:
        group = self._plan.group
        unpacked = Unpacked()
        offsets: dict[int, int] = {}
        parts = []
        for tp, batch in batches:
            begin = offsets.get(tp.partition, batch.begin)
            unpacked.add(batch, begin, self._plan.unpack, group)
            parts.append(Slice(batch, bisect_left(batch.offsets, begin), len(batch)))
            offsets[tp.partition] = batch.end
        checked = self._guard.check(parts, unpacked.dead_letters)
        await self._producer.send_dead_letters(unpacked.dead_letters)

        async def on_refused(refused: Sequence[Refusal]) -> None:
            nonlocal checked
            letters = [unpacked.refuse(index, reason, group) for index, reason in refused]
            checked = self._guard.check(parts, [*unpacked.dead_letters, *letters])
            await self._producer.send_dead_letters(letters)

        await self._store(unpacked, offsets, on_refused)
        self._guard.passed(checked)
        for tp, batch in batches:
            self._app.consumer.done(tp, batch.end)

    async def _store(
        self, unpacked: Unpacked, offsets: Mapping[int, int], on_refused: OnRefused
    ) -> None:
        """Store one batch; while Postgres is away, wait: the lane fills and fetching stops."""
        attempt = 0
        while True:
            try:
                sink = await self._open_sink()
                await sink.store(
                    unpacked.records,
                    offsets,
                    topic=self._plan.topic,
                    epoch=self._epoch.number,
                    on_refused=on_refused,
                )
            except (PostgresUnreachable, psycopg.OperationalError, psycopg.InterfaceError) as error:
                if attempt == 0:
                    log.warning("postgres.away", error=str(error).strip())
                await self._close_sink()
                await asyncio.sleep(BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)])
                attempt += 1
            else:
                return

    async def _open_sink(self) -> StagedSink:
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
                log.warning("sink.partitions", error=str(error).strip())


def sink_app(config: WorkerConfig, epoch: Epoch, plan: SinkPlan) -> App:
    """Return the app of one sink agent."""
    app = new_app(plan.group, config)
    register_agent(app, SinkRuntime(app, config, epoch, plan), plan.topic)
    return app
