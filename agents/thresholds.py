"""The threshold agent: outcomes to rows, to the changelog, to RocksDB, to Redis, in that order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog
from faust.types import TP

from agents.adoption import adopt_rows
from agents.app import App, WorkerConfig, new_app, register_agent
from agents.holes import WAIT_S, Holes
from agents.lane import Lane, end_process
from agents.producer import BatchProducer
from agents.refusals import RefusalGuard
from agents.store import ContextStore, new_table
from headstart.contexts import threshold_key
from learners.registry import policy
from processing.contexts import stored_threshold
from processing.partition import Commit, Partition
from processing.records import RecordBatch
from processing.refusals import Slice
from processing.rows import CONTEXT, version
from sinks.pending import PendingThresholds
from sinks.thresholds import ThresholdPublisher
from topics.catalogue import CHANGELOG, CONTEXTS_TABLE, EVENTS, THRESHOLDS, THRESHOLDS_GROUP
from topics.epoch import Epoch
from topics.schema import Threshold

log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class ThresholdLane:
    """One partition under one assignment."""

    def __init__(self, tp: TP, generation: int, core: Partition, runtime: ThresholdRuntime) -> None:
        self.generation = generation
        self.core = core
        self.expected = core.watermark + 1
        self._tp, self._runtime = tp, runtime
        held = runtime.store.persisted_offset(TP(CHANGELOG.name, tp.partition))
        self._next_changelog = 0 if held is None else held + 1
        self.lane = Lane(f"thresholds-{tp.partition}", self._handle)

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> None:
        parts: list[Slice] = []
        for _tp, batch in batches:
            position = 0
            while True:
                begin, position = position, self.core.apply(batch, position)
                parts.append(Slice(batch, begin, position))
                if position >= len(batch):
                    break
                await self._deliver(self.core.commit(), parts)
                parts = []
        await self._deliver(self.core.commit(), parts)

    async def _deliver(self, commit: Commit, parts: Sequence[Slice]) -> None:
        runtime, partition = self._runtime, self._tp.partition
        checked = runtime.guard.check(parts, commit.dead_letters)
        if commit.dead_letters:
            await runtime.producer.send_dead_letters(commit.dead_letters)
        first, last = await runtime.producer.send_rows(CHANGELOG.name, partition, commit.rows)
        if self.generation != runtime.app.consumer_generation_id:
            return  # the next owner recovers these rows from the changelog
        contiguous = first == self._next_changelog
        runtime.store.write_rows(partition, commit.rows, last if contiguous else None)
        if contiguous:
            self._next_changelog = last + 1
        await asyncio.gather(
            runtime.publish(commit.thresholds), runtime.announce(partition, commit.moved)
        )
        runtime.guard.passed(checked)
        runtime.app.consumer.done(self._tp, commit.end)


class ThresholdRuntime:
    """Every partition of this worker."""

    def __init__(self, app: App, config: WorkerConfig, epoch: Epoch, store: ContextStore) -> None:
        self.app, self.store, self.epoch = app, store, epoch
        self.producer = BatchProducer(config.kafka)
        self.guard = RefusalGuard(config.limits, config.data, epoch.number)
        self._config = config
        self._policy = policy(config.learner)
        self._publisher = ThresholdPublisher(config.redis)
        self._pending = PendingThresholds()
        self._holes = Holes()
        self._lanes: dict[TP, ThresholdLane] = {}
        self._retry: asyncio.Task[None] | None = None

    async def positions(self, assigned: set[TP], committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Open a lane per partition: rows restored, what may be unpublished published again."""
        if self._retry is None:
            await self.producer.start()
            self._retry = asyncio.create_task(self._publish_pending())
        await self.drain()
        generation = self.app.consumer_generation_id
        for tp in sorted(assigned):
            self._lanes[tp] = await self._open(tp, generation, committed.get(tp, 0))
        return {tp: lane.expected for tp, lane in self._lanes.items()}

    async def _open(self, tp: TP, generation: int, committed: int) -> ThresholdLane:
        await adopt_rows(self.store, self.producer, tp.partition, self.epoch.number)
        core = Partition(
            tp.partition,
            self.epoch.partitions,
            self.epoch.number,
            self._policy,
            self._config.levels,
            lambda key: self.store.get_row(tp.partition, key),
        )
        rows = list(self.store.scan(tp.partition))
        core.restore(rows)
        self.guard.open(tp, core.watermark + 1)
        # Rows at or past the committed offset may have reached the table but not Redis; so may
        # all rows where nothing of this log epoch has been applied.
        oldest = min(committed, core.watermark + 1) if core.watermark >= 0 else -1
        waiting = [
            stored_threshold(key, row, self._policy)
            for key, row in rows
            if key.startswith(CONTEXT) and version(row)[1] >= oldest
        ]
        await asyncio.gather(self.publish(waiting), self.announce(tp.partition, waiting))
        log.info(
            "thresholds.partition.opened",
            partition=tp.partition,
            watermark=core.watermark,
            rows=len(rows),
            published=len(waiting),
        )
        return ThresholdLane(tp, generation, core, self)

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch; drop it where it is of an older assignment, seek back over a gap."""
        lane = self._lanes.get(tp)
        if lane is None or generation != lane.generation:
            return
        if batch.begin > lane.expected:
            await self._seek_back(tp, lane, batch.begin)
            if batch.begin > lane.expected:
                return
        if batch.end <= lane.expected:
            return
        if not self.producer.idempotent and self._holes.doubtful(tp, batch):
            await asyncio.sleep(WAIT_S)
            await self.app.consumer.seek_wait({tp: lane.expected})
            return
        lane.expected = batch.end
        await lane.lane.put(tp, batch)

    async def _seek_back(self, tp: TP, lane: ThresholdLane, begin: int) -> None:
        """Fetch again what was skipped, or say what retention has taken."""
        earliest = (await self.app.consumer.earliest_offsets(tp))[tp]
        if earliest > lane.expected:
            log.error("thresholds.lost", partition=tp.partition, begin=lane.expected, end=earliest)
            lane.expected = earliest
        if begin > lane.expected:
            log.warning("thresholds.gap", partition=tp.partition, at=lane.expected, got=begin)
            await self.app.consumer.seek_wait({tp: lane.expected})

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition that nothing waits or works for."""
        return {tp: each.expected for tp, each in self._lanes.items() if each.lane.idle}

    async def drain(self) -> None:
        """Finish the steps in flight; forget the lanes."""
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(lane.lane.close() for lane in lanes.values()))

    async def close(self) -> None:
        """Finish the steps in flight, try once more what waits for Redis, disconnect."""
        await self.drain()
        if self._retry is not None:
            self._retry.cancel()
            await self.publish(self._pending.drain())
            await self.producer.stop()
        await self._publisher.close()

    async def publish(self, thresholds: list[Threshold]) -> None:
        """Publish to Redis. A failure never stops learning: what failed waits and is retried."""
        if not thresholds:
            return
        try:
            await self._publisher.publish(thresholds)
        except ConnectionError as error:
            if not self._pending:
                log.warning("redis.away", error=str(error))
            self._pending.add(thresholds)

    async def announce(self, partition: int, moved: list[Threshold]) -> None:
        """Append changed thresholds to the compacted topic, in the partition of their events."""
        rows = [(threshold_key(t.tenant, t.path), _encode(t)) for t in moved]
        for begin in range(0, len(rows), 1000):  # stays below the topic's record batch limit
            await self.producer.send_rows(THRESHOLDS.name, partition, rows[begin : begin + 1000])

    async def _publish_pending(self) -> None:
        try:
            while True:
                await asyncio.sleep(1.0)
                if self._pending:
                    await self.publish(self._pending.drain())
        except Exception as error:
            end_process("thresholds.publish", error)


def thresholds_app(config: WorkerConfig, epoch: Epoch) -> App:
    """Return the app of the threshold agent."""
    app = new_app(THRESHOLDS_GROUP, config)
    table: Any = new_table(app, CONTEXTS_TABLE, epoch.partitions, epoch.number)
    register_agent(app, ThresholdRuntime(app, config, epoch, table.data), EVENTS.name)
    return app
