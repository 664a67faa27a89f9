"""The log recreated, as `headstart up` does: drained first, then a new log epoch at offset 0."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from agents.thresholds.adoption import is_whole
from processing.state.rows import PARTITION_KEY, version
from tests.simulation import faults
from tests.simulation.broker import PARTITIONS, Broker
from tests.simulation.process import Process
from tests.simulation.traffic import Shipper
from tests.simulation.world import World
from topics.epoch import Epoch

LOOK_S = 2.0
STOP_S = 15
RECREATING: Final = 11
"""Remainder by 17 of the seeds in whose worlds two workers meet a recreated log."""
PORTS: Final = (
    "redis.note", "redis.owners", "changelog.append", "changelog.recover", "changelog.end",
    "store.write",
)  # fmt: skip
HOW: Final = ("crash before", "crash after", "lost reply")


def recreating(drawn: faults.Schedule) -> faults.Schedule:
    """Have two workers meet a recreated log after they exchanged partitions, in some seeds.

    Redis keeps what it has: without what it notes of owners, older rows are adopted.
    """
    if drawn.seed % 17 != RECREATING or drawn.failing_over:  # which needs the log that there was
        return drawn
    chance = random.Random(f"{drawn.seed} recreates")
    kept = [
        fault
        for fault in drawn.faults
        if not isinstance(fault, faults.Recreate | faults.Rebuild)
        and not (isinstance(fault, faults.Redis) and fault.how != "down")
    ]
    more: list[faults.Fault] = [
        faults.Rebalance(int(chance.random() * faults.LAST_FAULT_AT), "thresholds")
        for _ in range(chance.randint(1, 2))
    ]
    more += [
        faults.PortFault(chance.choice(PORTS), chance.randint(1, 40), chance.choice(HOW))
        for _ in range(chance.randint(0, 3))
    ]
    lost = chance.choice([(), (), (), ("thresholds-0",), ("thresholds-1",)])
    at = int((0.4 + 0.6 * chance.random()) * faults.LAST_FAULT_AT)
    more.append(faults.Recreate(at, lost))
    return replace(drawn, workers=2, faults=(*kept, *more), recreating=True)


def recreate(world: World, lost: tuple[str, ...] = ()) -> None:
    """Begin to drain, stop everything, and start it on an empty broker.

    `lost`: workers whose data directories are gone with the log.
    """
    if world.recreating:
        return
    world.recreating = True
    world.shipper.kill("the log is drained")
    Operator(world, lost)


def false_refusals(world: World) -> Iterator[str]:
    """Yield the partitions whose rows a worker waits for although a directory has them all."""
    for worker in world.workers.values():
        for partition in worker.refused:
            last = world.redis.owners[partition]
            for owner, disk in world.disks.items():
                row = disk.rows.get(partition, {}).get(PARTITION_KEY)
                if row is not None and is_whole(version(row), last, owner):
                    yield f"{worker.name} waits for partition {partition}, which {owner} has"


class Operator(Process):
    """Does step by step what `up` does."""

    def __init__(self, world: World, lost: tuple[str, ...]) -> None:
        super().__init__("operator", world)
        self._lost = lost
        self.start(self._recreate())

    async def _recreate(self) -> None:
        world = self.world
        while world.appending() or not (  # noqa: ASYNC110 - as an operator looks
            world.drained() and world.owners_are_noted()
        ):
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
        for name in self._lost:
            world.disks.pop(name, None)
        world.note(f"log epoch {world.epoch.number}")
        world.upheld = True
        for name in world.wanted:
            world.start_worker(name)
        world.recreating = False
        world.shipper = Shipper("shipper", world)
