"""The threshold agent: outcomes to rows, which go to the changelog and RocksDB, and to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from faust.types import TP

from agents.app import App, new_app, register_agent
from agents.config import WorkerConfig
from agents.consumer.partition_queue import queue_bytes_per_partition
from agents.consumer.sequencer import FetchSequencer
from agents.consumer.source import GroupSource
from agents.dlq_limit_guard import DlqLimitGuard
from agents.fatal import exit_fatally
from agents.health.metrics import WorkerCounts
from agents.health.stall_guard import StallGuard
from agents.producer import BatchProducer
from agents.thresholds.clock_records import LOOK_S, send_clock_records
from agents.thresholds.command_sync import sync_commands
from agents.thresholds.default_broadcast import broadcast_evidence_and_defaults
from agents.thresholds.epoch_migration import CountDiffers, migrate_rows_to_epoch
from agents.thresholds.pacing import in_chunks
from agents.thresholds.partition import OwnedPartition
from agents.thresholds.recovery import Recovered, recover
from agents.thresholds.redis_publishing import RedisPublishQueue
from agents.thresholds.redis_repair import RedisChecks
from agents.thresholds.services import PartitionServices
from agents.thresholds.sound_clock import SoundClock
from agents.thresholds.store import ContextStore, new_table
from kernels.loader import load_in_background
from processing.partition_count import read_count, write_count
from processing.records.batch import RecordBatch
from sinks.redis.publish_markers import PublishMarkers
from topics.catalogue import CHANGELOG, CONTEXTS_TABLE, EVENTS, THRESHOLDS_GROUP
from topics.epoch import Epoch
from topics.kafka.reader import topic_state

log = structlog.get_logger()

REDIS_INTERVAL_S: Final = 1.0
"""How soon what waits for Redis is tried again, and a Redis that forgot is noticed."""
PARTITION_BYTES: Final = 8_388_608
"""What a fetch brings of a partition, at the most: the more, the fewer times each of its contexts
is looked up, told and counted."""
TIDY_INTERVAL_S: Final = 10.0
"""How often the changelog is looked at where nothing happens: well inside its compaction lag, and
soon enough to rewrite it for whoever restores after two kills in a row."""


class ThresholdAgent:
    """Every partition of this worker."""

    def __init__(self, app: App, config: WorkerConfig, epoch: Epoch, store: ContextStore) -> None:
        self.counts = WorkerCounts()
        self.services = PartitionServices(
            app,
            config.kafka,
            epoch,
            config.rules,
            store,
            BatchProducer(config.kafka),
            RedisPublishQueue(config.redis, self.counts),
            StallGuard(),
            self.counts,
            DlqLimitGuard(config.limits, config.data, epoch.number),
        )
        self._config = config
        self._published = PublishMarkers(config.redis)
        self._sound_clock = SoundClock(self._published.now_ms)
        self._checks = RedisChecks(
            self.services, self._owners, self._fetched, config.redis, config.check_redis_s
        )
        self.share = queue_bytes_per_partition(1)
        """Bytes of each partition that may wait."""
        self.same_count = True
        """Whether the local store was made with as many partitions as the topic has."""
        self.opened: Callable[[], None] = lambda: None
        """Called when partitions have been taken up."""
        self._owned: dict[TP, OwnedPartition] = {}
        self._intake: FetchSequencer[TP] | None = None
        self._generation = -1
        self._scanner = ThreadPoolExecutor(1, "scanner")
        self._tasks: list[asyncio.Task[None]] = []

    async def positions(self, assigned: set[TP], committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Take up each partition: rows restored, what may be unpublished published again."""
        services = self.services
        if not self._tasks:
            await services.producer.start()
            self._tasks = [
                services.alive.start(),
                asyncio.create_task(self._keep(self._watch_redis, REDIS_INTERVAL_S)),
                asyncio.create_task(self._keep(self._checks.work, REDIS_INTERVAL_S)),
                asyncio.create_task(self._keep(self._tidy, TIDY_INTERVAL_S)),
                asyncio.create_task(self._keep(self._merge, self._config.merge_every_s)),
                asyncio.create_task(self._keep(self._say_the_time, LOOK_S)),
            ]
        await self.drain()
        self.share = queue_bytes_per_partition(len(assigned))
        generation = services.app.consumer_generation_id
        recovered = await recover(services.store, services.kafka, [tp.partition for tp in assigned])
        owned = {
            tp: await self._open(tp, committed.get(tp, 0), recovered[tp.partition])
            for tp in sorted(assigned)
        }
        begin = {tp: each.core.applied_offset + 1 for tp, each in owned.items()}
        real = services.producer.idempotent
        source, lose = GroupSource(services.app), self.counts.lose
        self._intake = FetchSequencer(
            source, THRESHOLDS_GROUP, begin, holes_are_real=real, on_lost=lose
        )
        self._owned, self._generation = owned, generation
        self.opened()
        await self._say_the_time()
        return begin

    async def _open(self, tp: TP, committed: int, recovered: Recovered) -> OwnedPartition:
        services = self.services
        await migrate_rows_to_epoch(
            services.store,
            services.producer,
            tp.partition,
            services.epoch,
            same_count=self.same_count,
        )
        owned = OwnedPartition(tp, services, recovered.complete_from, self.share)
        await owned.restore()
        services.guard.open(tp, owned.core.applied_offset + 1)
        await owned.delivery.mend(recovered.overtaken)
        core = owned.core
        # Rows at or past the committed offset may have reached the table but not Redis; so may
        # all rows where nothing of this log epoch has been committed.
        oldest = (
            min(committed, core.applied_offset + 1) if committed > 0 <= core.applied_offset else -1
        )
        published = 0
        async for rows in in_chunks(services.store.scan(tp.partition)):
            waiting = services.stored(tp.partition, rows, oldest)
            published += len(waiting)
            await asyncio.gather(
                services.publishing.publish(waiting), owned.produce_thresholds(waiting)
            )
        log.info(
            "thresholds.partition.opened",
            partition=tp.partition,
            applied_offset=core.applied_offset,
            published=published,
        )
        services.app.opened += 1
        return owned

    def _owners(self) -> list[OwnedPartition]:
        """Return the partitions that this worker has now."""
        return list(self._owned.values())

    def _fetched(self, partition: int) -> int:
        """Return an offset up to which a partition's log has been fetched: it is as long."""
        tp = TP(EVENTS.name, partition)
        if self._intake is None or tp not in self._owned:
            return 0
        return self._intake.positions[tp]

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch if it is the next one of its partition."""
        owned, intake = self._owned.get(tp), self._intake
        if owned is None or intake is None or generation != self._generation:
            return
        if await intake.admit(tp, batch):
            await owned.lane.put(tp, batch)

    def prefetch_scan(self, tp: TP, batch: RecordBatch) -> None:
        """Scan a batch while another one has its turn, and others are fetched."""
        owned = self._owned.get(tp)
        scan = None if owned is None else owned.core.prefetch_scan(batch)
        if scan is not None:
            batch.ahead = self._scanner.submit(scan)

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition that nothing waits or works for."""
        if self._intake is None:
            return {}
        positions = self._intake.positions
        return {tp: positions[tp] for tp, each in self._owned.items() if each.lane.idle}

    def away(self) -> set[str]:
        """Return Redis while thresholds wait for it; learning goes on without."""
        return {"redis"} if self.services.publishing.waiting else set()

    async def drain(self) -> None:
        """Finish the steps in flight; let go of the partitions."""
        owned, self._owned = self._owned, {}
        await asyncio.gather(*(each.lane.close() for each in owned.values()))

    async def close(self) -> None:
        """Finish the steps in flight, try once more what waits for Redis, disconnect."""
        await self.drain()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await self.services.publishing.catch_up()
            await self.services.producer.stop()
        await self.services.publishing.close()
        await self._published.close()
        await self._checks.close()

    async def _keep(self, work: Any, interval_s: float) -> None:
        """Do `work` every so often; an error in it ends the process."""
        try:
            while True:
                await asyncio.sleep(interval_s)
                await work()
        except Exception as error:
            exit_fatally(work.__name__, error)

    async def _watch_redis(self) -> None:
        """Publish what waits; publish everything where Redis has forgotten."""
        if not await self.services.publishing.catch_up():
            return
        for tp in self._owned:
            self.services.app.consumer.commit_done(tp)
        try:
            if partitions := [tp.partition for tp in self._owned]:
                run, unpublished = await self._published.unpublished(partitions)
                for partition in unpublished:
                    await self._publish_again(partition, run)
        except ConnectionError:
            return  # what is to be published says so

    async def _publish_again(self, partition: int, run: bytes) -> None:
        services = self.services
        mark = await self._published.begin(partition)
        owned = self._owned.get(TP(EVENTS.name, partition))
        in_flight = () if owned is None else owned.delivery.in_flight  # before the store is read
        published = 0
        async for rows in in_chunks(services.store.scan(partition)):
            published += await services.publishing.publish_now(services.stored(partition, rows))
        published += await services.publishing.publish_now(in_flight)
        services.alive.check()  # or another owner, with newer rows, would take this for its own
        await self._published.remember(partition, run, mark)
        self._checks.soon()  # what is newer than the table took none of it
        log.info("thresholds.published.again", partition=partition, thresholds=published)

    async def _merge(self) -> None:
        """Say what was learned of workflow types, for the defaults of their tenants."""
        for owned in list(self._owned.values()):
            await broadcast_evidence_and_defaults(owned, self.services)

    async def _say_the_time(self) -> None:
        """Tell partitions what time it is; contexts, starts and positions expire by that."""
        await send_clock_records(self._owners(), self.services, self._sound_clock)

    async def _tidy(self) -> None:
        """Look after what needs no hurry; a broker that does not answer now will later."""
        try:
            ends = (await topic_state(self.services.kafka, CHANGELOG.name)).end
            for tp, owned in list(self._owned.items()):
                await owned.tidy(ends[tp.partition])
        except ConnectionError as error:
            log.warning("thresholds.tidy", error=str(error))


def thresholds_app(config: WorkerConfig, epoch: Epoch) -> App:
    """Return the app of the threshold agent."""
    # While the group is being joined, which is mostly waiting.
    load_in_background()
    app = new_app(THRESHOLDS_GROUP, config)
    table: Any = new_table(app, CONTEXTS_TABLE, epoch.partitions, epoch.number)
    runtime = ThresholdAgent(app, config, epoch, table.data)
    _check_count(runtime, config.data, epoch)
    register_agent(app, runtime, EVENTS.name)
    app.prefetch_scan, app.partition_bytes = runtime.prefetch_scan, PARTITION_BYTES
    app.task(partial(sync_commands, config, runtime.counts))
    return app


def _check_count(runtime: ThresholdAgent, data: Path, epoch: Epoch) -> None:
    """Compare the partitions that a worker's directory was learned with with those of the topic.

    Raises `CountDiffers`. Noted once the rows that are there have been taken up.
    """
    count = read_count(data)
    if count is not None and count.contradicts(epoch.partitions):
        raise CountDiffers(data, count.number, epoch.partitions)
    runtime.same_count = count is None or count.number == epoch.partitions
    if count is None:
        write_count(data, epoch.partitions)
    elif not count.sure:
        runtime.opened = partial(write_count, data, epoch.partitions)
