"""The threshold agent: turns outcomes into rows and thresholds, and publishes them."""

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
from agents.consumer.lost_records import LostRecords
from agents.consumer.partition_queue import queue_bytes_per_partition
from agents.consumer.sequencer import FetchSequencer
from agents.dlq_limit_guard import DlqLimitGuard
from agents.environment import Environment, Tuning
from agents.health.metrics import WorkerCounts
from agents.thresholds.adoption import Adoption
from agents.thresholds.clients import Clients
from agents.thresholds.clock_records import send_clock_records
from agents.thresholds.command_sync import sync_commands
from agents.thresholds.default_broadcast import broadcast_evidence_and_defaults
from agents.thresholds.early_publishing import EarlyPublisher
from agents.thresholds.epoch_migration import CountDiffers
from agents.thresholds.partition import OwnedPartition
from agents.thresholds.recovery import Recovered, recover
from agents.thresholds.redis_loss import RedisLossDetector
from agents.thresholds.redis_publishing import RedisPublishQueue
from agents.thresholds.redis_repair import RedisChecks
from agents.thresholds.services import PartitionServices
from agents.thresholds.sound_clock import SoundClock
from agents.thresholds.store import ContextStore, new_table
from kernels.loader import load_in_background
from processing.partition_count import read_count, write_count
from processing.records.batch import RecordBatch
from topics.catalogue import CHANGELOG, CONTEXTS_TABLE, EVENTS, THRESHOLDS_GROUP
from topics.epoch import Epoch

log = structlog.get_logger()

PARTITION_BYTES: Final = 8_388_608
"""Of one partition in a fetch, at most: the more, the less often each of its contexts is looked up
and its outcomes are counted."""


class ThresholdAgent:
    """Owns the partitions of this worker: opens them, feeds them, and runs periodic jobs."""

    def __init__(
        self,
        app: App,
        config: WorkerConfig,
        epoch: Epoch,
        store: ContextStore,
        env: Environment,
        clients: Clients,
    ) -> None:
        self.counts = WorkerCounts()
        self.services = PartitionServices(
            app,
            env,
            clients,
            config.kafka,
            epoch,
            config.rules,
            store,
            clients.producer(config.kafka),
            RedisPublishQueue(clients.publisher(config.redis), self.counts),
            env.stall_guard(),
            self.counts,
            DlqLimitGuard(config.limits, config.data, epoch.number),
        )
        self._config = config
        self._early = EarlyPublisher(env.exit)
        self._markers = clients.publish_markers(config.redis)
        owners = clients.last_owners(config.redis)
        self._adoption = Adoption(self.services, owners, config.instance, config.data)
        self._sound_clock = SoundClock(self._markers.now_ms, env.clock.running_s)
        self._checks = RedisChecks(
            self.services, self._owners, self._fetched, config.redis, config.check_redis_s
        )
        self._redis_loss = RedisLossDetector(
            self.services,
            self._markers,
            lambda: {each.partition: each for each in self._owners()},
            self._checks,
        )
        self.share = queue_bytes_per_partition(1)
        """Bytes of each partition that may wait in its queue."""
        self.same_count = True
        """Whether the local store was created with as many partitions as the topic has."""
        self.opened: Callable[[], None] = lambda: None
        """Called when partitions have been opened."""
        self._owned: dict[TP, OwnedPartition] = {}
        self._lost = LostRecords(THRESHOLDS_GROUP, self.services.producer, self.counts)
        self._sequencer: FetchSequencer[TP] | None = None
        self._generation = -1
        self._scanner = ThreadPoolExecutor(1, "scanner")
        self._tasks: list[asyncio.Task[None]] = []

    async def positions(self, assigned: set[TP], committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Open each partition: restore its rows, publish again what may be unpublished."""
        services, tuning = self.services, self.services.env.tuning
        if not self._tasks:
            await services.producer.start()
            self._tasks = [
                services.stall_guard.start(),
                asyncio.create_task(self._repeat(self._watch_redis, tuning.redis_interval_s)),
                asyncio.create_task(self._repeat(self._checks.work, tuning.redis_interval_s)),
                asyncio.create_task(self._repeat(self._tidy, tuning.tidy_interval_s)),
                asyncio.create_task(self._repeat(self._merge, self._config.merge_every_s)),
                asyncio.create_task(
                    self._repeat(self._send_clock_records, tuning.clock_interval_s)
                ),
            ]
        await self.drain()
        self.share = queue_bytes_per_partition(len(assigned))
        generation = services.app.consumer_generation_id
        partitions = [tp.partition for tp in assigned]
        recovered = await recover(services.store, services.clients, services.kafka, partitions)
        await self._adoption.adopt(partitions, same_count=self.same_count)
        owned = {
            tp: await self._open(tp, committed.get(tp, 0), recovered[tp.partition])
            for tp in sorted(assigned)
        }
        begin = {tp: each.core.applied_offset + 1 for tp, each in owned.items()}
        real = services.producer.idempotent
        self._sequencer = FetchSequencer(
            services.app.consumer, THRESHOLDS_GROUP, begin, holes_are_real=real, on_lost=self._lost
        )
        self._owned, self._generation = owned, generation
        self.opened()
        await self._send_clock_records()
        return begin

    async def _open(self, tp: TP, committed: int, recovered: Recovered) -> OwnedPartition:
        services = self.services
        owned = OwnedPartition(
            tp, services, recovered.complete_from, self.share, self._early.publish_soon
        )
        await owned.restore()
        services.dlq_guard.open(tp, owned.core.applied_offset + 1)
        await owned.writer.rewrite_stale_keys(recovered.stale_keys)
        core = owned.core
        # Rows at or past the committed offset may have reached the table but not Redis; so may
        # all rows where nothing of this log epoch has been committed.
        oldest = (
            min(committed, core.applied_offset + 1) if committed > 0 <= core.applied_offset else -1
        )
        published = 0
        async for rows in services.store.scan_chunks(tp.partition):
            unpublished = services.thresholds_of(tp.partition, rows, oldest)
            published += len(unpublished)
            await asyncio.gather(
                services.publish_queue.publish(unpublished),
                owned.targets.produce_thresholds(unpublished),
            )
        log.info(
            "partition.opened",
            partition=tp.partition,
            applied_offset=core.applied_offset,
            published=published,
        )
        services.app.opened += 1
        return owned

    def _owners(self) -> list[OwnedPartition]:
        """Return the partitions that this worker owns now."""
        return list(self._owned.values())

    def _fetched(self, partition: int) -> int:
        """Return the offset up to which a partition has been fetched."""
        tp = TP(EVENTS.name, partition)
        if self._sequencer is None or tp not in self._owned:
            return 0
        return self._sequencer.positions[tp]

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch if it is the next one of its partition."""
        owned, sequencer = self._owned.get(tp), self._sequencer
        if owned is None or sequencer is None or generation != self._generation:
            return
        if await sequencer.admit(tp, batch):
            await owned.queue.put(tp, batch)

    def prefetch_scan(self, tp: TP, batch: RecordBatch) -> None:
        """Scan a batch while others are applied and fetched."""
        owned = self._owned.get(tp)
        scan = None if owned is None else owned.core.prefetch_scan(batch)
        if scan is not None:
            batch.prefetched = self._scanner.submit(scan)

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition that has nothing waiting or in flight."""
        if self._sequencer is None:
            return {}
        positions = self._sequencer.positions
        return {tp: positions[tp] for tp, each in self._owned.items() if each.queue.idle}

    def away(self) -> set[str]:
        """Return Redis while thresholds wait for it; learning continues without it."""
        return {"redis"} if self.services.publish_queue.waiting else set()

    async def drain(self) -> None:
        """Finish the steps in flight; release the partitions."""
        owned, self._owned = self._owned, {}
        await asyncio.gather(*(each.queue.close() for each in owned.values()))
        if owned and not self.services.publish_queue.waiting:
            await self._adoption.give_back(tp.partition for tp in owned)

    async def close(self) -> None:
        """Finish the steps in flight, retry what waits for Redis once, disconnect."""
        await self.drain()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await self.services.publish_queue.catch_up()
            await self.services.producer.stop()
        await self.services.publish_queue.close()
        await self._markers.close()
        await self._adoption.close()
        await self._checks.close()

    async def _repeat(self, work: Any, interval_s: float) -> None:
        """Call `work` at intervals; an error in it ends the process."""
        try:
            while True:
                await asyncio.sleep(interval_s)
                await work()
        except Exception as error:
            self.services.env.exit(work.__name__, error)

    async def _watch_redis(self) -> None:
        """Publish what Redis lacks; note there how far the partitions are."""
        await self._redis_loss.work()
        await self._adoption.keep([each.partition for each in self._owners()])

    async def _merge(self) -> None:
        """Publish evidence of workflow types, and the defaults that are merged from it."""
        partitions, clock = self.services.epoch.partitions, self.services.env.clock
        for owned in self._owners():
            await broadcast_evidence_and_defaults(owned, partitions, clock.now_ms())

    async def _send_clock_records(self) -> None:
        """Send clock records, by which contexts, starts and positions expire."""
        await send_clock_records(self._owners(), self.services.env.clock, self._sound_clock)

    async def _tidy(self) -> None:
        """Tidy each partition; if the broker does not answer, try again at the next interval."""
        try:
            services = self.services
            changelog = await services.clients.topic_state(services.kafka, CHANGELOG.name)
            for owned in self._owners():
                await owned.tidy(changelog.end[owned.partition])
        except ConnectionError as error:
            log.warning("changelog_check.retrying", error=str(error))


def thresholds_app(config: WorkerConfig, epoch: Epoch) -> App:
    """Return the app of the threshold agent."""
    # While the worker joins its group, which is mostly waiting.
    load_in_background()
    app = new_app(THRESHOLDS_GROUP, config)
    table: Any = new_table(app, CONTEXTS_TABLE, epoch.partitions, epoch.number)
    tuning = Tuning(delete_after_s=config.deletion_marks_s)
    runtime = ThresholdAgent(app, config, epoch, table.data, Environment(tuning=tuning), Clients())
    _check_count(runtime, config.data, epoch)
    register_agent(app, runtime, EVENTS.name)
    app.prefetch_scan, app.partition_bytes = runtime.prefetch_scan, PARTITION_BYTES
    app.task(partial(sync_commands, config, runtime.counts))
    return app


def _check_count(runtime: ThresholdAgent, data: Path, epoch: Epoch) -> None:
    """Compare the partition count that a worker's directory was created with to the topic's.

    Raises `CountDiffers`. A count that is not sure is written once the partitions are open.
    """
    count = read_count(data)
    if count is not None and count.contradicts(epoch.partitions):
        raise CountDiffers(data, count.number, epoch.partitions)
    runtime.same_count = count is None or count.number == epoch.partitions
    if count is None:
        write_count(data, epoch.partitions)
    elif not count.sure:
        runtime.opened = partial(write_count, data, epoch.partitions)
