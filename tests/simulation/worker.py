"""One worker process: the real runtime of an agent, fed and assigned as by Faust."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from faust.types import TP

from agents.config import CannotOpenYet, PartitionAgent, WorkerConfig
from agents.consumer.stall_refetch import refetch_stalled_partitions
from agents.storage.agent import StorageAgent
from agents.storage.transactions import SinkSpec
from agents.thresholds.adoption import RowsElsewhere
from agents.thresholds.agent import ThresholdAgent
from processing.records.dlq_limits import DlqLimits
from processing.records.sink_lines import unpack_events
from tests.simulation.clients import App, Producer, Store
from tests.simulation.databases import Sink
from tests.simulation.process import Process, end_process
from tests.simulation.wiring import CLIENTS, REFETCH_S, environment
from topics.catalogue import EPISODES_GROUP, EVENTS
from topics.epoch import Epoch

if TYPE_CHECKING:
    from tests.simulation.world import World

COMMIT_S: Final = 9.0
MERGE_S: Final = 12.0
CHECK_S: Final = 10.0
NEVER_S: Final = 1e9
AGAIN_S: Final = 10.0
PLAN: Final = SinkSpec(EPISODES_GROUP, EVENTS.name, Sink, unpack_events)  # type: ignore[arg-type]


class Worker(Process):
    """A process of one group. Every client of it is handed the worker as its address."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world)
        self.kind = name.partition("-")[0]
        self.broker = world.broker
        self.group = self.broker.groups[self.kind]
        self.app = App(self)
        self.store = Store(world.disk(name), world.epoch.number, self)
        self.deaf = False
        """Whether heartbeats fail: the group has gone on, and the worker goes on too."""
        self.open = False
        self.refused: tuple[int, ...] = ()
        """Partitions that it does not open, because their rows are elsewhere."""
        self.refused_since = 0.0
        self._assigned: set[int] = set()
        self._newly = asyncio.Event()
        self._notified = asyncio.Event()
        self.app.runtime = self.runtime = self._new_runtime(world.epoch)
        self.broker.readers.append(self.app.consumer.ready)
        for work in (self._belong, self._take_up, self._feed, self._commit, self._sweep):
            self.start(self._or_end(work))

    def _new_runtime(self, epoch: Epoch) -> PartitionAgent:
        here: Any = self
        config = WorkerConfig(
            here, here, here, Path(), self.world.rules, self.name,
            DlqLimits(ratio=0, run=0),
            merge_every_s=MERGE_S if self.world.schedule.merging else NEVER_S,
            check_redis_s=CHECK_S if self.world.schedule.tampering else 0.0,
        )  # fmt: skip
        app: Any = self.app
        env = environment(self)
        if self.kind == "thresholds":
            return self.context.run(ThresholdAgent, app, config, epoch, self.store, env, CLIENTS)
        producer: Any = Producer(self)
        return self.context.run(StorageAgent, app, config, epoch, PLAN, env, producer)

    async def _or_end(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            end_process(work.__name__, error)

    def tp(self, partition: int) -> TP:
        return TP(EVENTS.name, partition)

    def on_heartbeat(self) -> None:
        self._notified.set()

    def lose_the_group(self, seconds: float) -> None:
        """Be removed from the group, and notified of it only later."""
        self.deaf = True
        self.group.leave(self)

        def on_heartbeat() -> None:
            self.deaf = False
            self.on_heartbeat()

        self.world.later(seconds, on_heartbeat)

    async def _belong(self) -> None:
        """Join the group; on a rebalance let go, and join again."""
        while True:
            generation, assigned = await self.group.join(self)
            self.world.note(f"{self.name} owns {sorted(assigned)} in generation {generation}")
            self.app.consumer.forget()
            self.app.consumer_generation_id = generation
            self.open, self._assigned = False, assigned
            self._newly.set()
            self._notified.clear()
            while self.deaf or self.group.holds(self, generation):
                await self._notified.wait()
                self._notified.clear()
            self.app.rebalancing = True
            await self.runtime.drain()
            self.app.rebalancing = False

    async def _take_up(self) -> None:
        """Open partitions, one assignment after the other."""
        while True:
            await self._newly.wait()
            self._newly.clear()
            generation, assigned = self.app.consumer_generation_id, sorted(self._assigned)
            committed = await self.call("group.committed", lambda: dict(self.group.committed))
            if self._newly.is_set():
                continue  # Faust begins its recovery again
            begin = await self._positions(generation, assigned, committed)
            if begin is not None and generation == self.app.consumer_generation_id:
                self.app.consumer.begin = {tp.partition: at for tp, at in begin.items()}
                self.app.consumer.position = dict(self.app.consumer.begin)
                self.app.consumer.ready.set()
                self.open = True

    async def _positions(
        self, generation: int, assigned: list[int], committed: Mapping[int, int]
    ) -> Mapping[TP, int] | None:
        """Open partitions, again and again while their rows are elsewhere: as `agents.app` does."""
        while generation == self.app.consumer_generation_id:
            try:
                begin = await self.runtime.positions(
                    {self.tp(p) for p in assigned},
                    {self.tp(p): committed.get(p, 0) for p in assigned},
                )
            except CannotOpenYet as error:
                if isinstance(error, RowsElsewhere) and error.partitions != self.refused:
                    self.refused, self.refused_since = error.partitions, self.world.loop.now
                self.world.note(f"{self.name} {error}")
                await asyncio.sleep(AGAIN_S)
            else:
                self.refused = ()
                return begin
        self.refused = ()
        return None

    async def _feed(self) -> None:
        """Fetch, and hand over; a fetch under way during a rebalance still arrives."""
        consumer = self.app.consumer
        while True:
            await consumer.ready.wait()
            generation = self.app.consumer_generation_id
            logs = self.broker.logs[EVENTS.name]
            some = [p for p, at in consumer.position.items() if logs[p].stable > at]
            if not some:
                consumer.ready.clear()
                continue
            partition = self.world.chance.choice(some)
            at = consumer.position[partition]
            fetch = lambda p=partition, begin=at: self.broker.fetch(p, begin)  # noqa: E731
            batch = await self.call("events.fetch", fetch)
            if batch is None:
                consumer.position[partition] = logs[partition].stable  # nothing is left there
                continue
            if consumer.position.get(partition) == at:
                consumer.position[partition] = batch.end
            await self.runtime.accept(self.tp(partition), generation, batch)

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await self.app.consumer.commit()

    async def _sweep(self) -> None:
        await refetch_stalled_partitions(self.app, REFETCH_S)

    def stop(self) -> None:
        """Be asked to end."""
        self.start(self._or_end(self._stop))

    async def _stop(self) -> None:
        await self.runtime.close()
        await self.app.consumer.commit()
        self.group.leave(self)
        self.kill("stopped")
