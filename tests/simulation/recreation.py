"""The log recreated, as `headstart up` does: drained first, then a new log epoch at offset 0."""

from __future__ import annotations

import asyncio

from tests.simulation.broker import PARTITIONS, Broker
from tests.simulation.process import Process
from tests.simulation.traffic import Shipper
from tests.simulation.world import World
from topics.epoch import Epoch

LOOK_S = 2.0
STOP_S = 15


def recreate(world: World) -> None:
    """Begin to drain, stop everything, and start it on an empty broker."""
    if world.recreating:
        return
    world.recreating = True
    world.shipper.kill("the log is drained")
    Operator(world)


class Operator(Process):
    """Does step by step what `up` does."""

    def __init__(self, world: World) -> None:
        super().__init__("operator", world)
        self.start(self._recreate())

    async def _recreate(self) -> None:
        world = self.world
        while world.appending() or not world.drained():  # noqa: ASYNC110 - as an operator looks
            await asyncio.sleep(LOOK_S)
        # What is sent from here on finds no broker; see docs/explanation/exactness.md.
        world.upheld = False
        for worker in list(world.workers.values()):
            if worker.running:
                worker.stop()
            for _ in range(STOP_S):
                if not worker.dead:
                    await asyncio.sleep(1.0)
            worker.kill("the broker goes")
        world.calls = [call for call in world.calls if not call.process.dead]
        world.past.append((world.epoch.number, world.broker))
        world.broker = Broker(world.chance, kafka=world.schedule.kafka)
        world.epoch = Epoch(world.epoch.number + 1, PARTITIONS)
        world.skews = {n: by for n, by in world.skews.items() if not n.startswith("executor")}
        world.note(f"log epoch {world.epoch.number}")
        world.upheld = True
        for name in world.wanted:
            world.start_worker(name)
        world.recreating = False
        world.shipper = Shipper("shipper", world)
