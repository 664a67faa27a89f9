"""What goes wrong in a cluster of brokers: each fault by name, done to a running world."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.chaos.cluster import BROKERS, SESSION_S
from tests.chaos.world import READY_S, Undo, World, stopped
from tests.patience import until
from topics.catalogue import THRESHOLDS_GROUP

Fault = Callable[[World, random.Random], Undo | None]
JOINS = 4
"""Of one more worker, in a storm of rebalances."""
FULL_S = 15.0
UNFIT_S = 15.0
"""For so long a worker that may not join is there."""
SHIFTED_CLOCK = Path(__file__).parents[1] / "integration" / "shifted_clock"


def kill_broker(world: World, draw: random.Random, number: int) -> Undo:
    """Kill one; it is away for some seconds beyond the recovery."""
    world.cluster.kill(number)

    def undo() -> None:
        world.sleep(draw.uniform(0, 5))
        world.cluster.start_again(number, world.look_after)

    return undo


def kill_controller(world: World, draw: random.Random) -> Undo:
    return kill_broker(world, draw, world.cluster.controller())


def kill_coordinator(world: World, draw: random.Random) -> Undo:
    return kill_broker(world, draw, world.cluster.coordinator(THRESHOLDS_GROUP))


def pause_broker(world: World, draw: random.Random) -> None:
    with stopped(world.cluster.pid(draw.choice(world.cluster.numbers))):
        world.sleep(draw.uniform(1, 2 * SESSION_S))
    world.cluster.wait_whole(world.look_after)


def restart_brokers(world: World, draw: random.Random) -> None:
    for number in world.cluster.numbers:
        world.cluster.terminate(number)
        world.cluster.start_again(number, world.look_after)


def restart_workers(world: World, draw: random.Random) -> None:
    for name in sorted(world.workers):
        with suppress(ProcessLookupError):
            os.kill(world.workers[name], signal.SIGTERM)
        world.sleep(1.0)
        world.wait_ready()


def storm_of_rebalances(world: World, draw: random.Random) -> None:
    for _ in range(JOINS):
        joined = world.supervise("storm", ("thresholds",))
        try:
            until(
                lambda of=joined: of.ready,  # type: ignore[misc]
                READY_S, 0.1, meanwhile=world.look_after, seen=lambda: "it did not join",
            )  # fmt: skip
            world.sleep(draw.uniform(0, 2))
        finally:
            joined.stop()


def one_way(world: World, draw: random.Random) -> None:
    with world.cluster.proxy.unanswered():
        world.sleep(draw.uniform(2, 8))
    world.cluster.wait_whole(world.look_after)


def full_disk(world: World, draw: random.Random) -> None:
    """Fill one broker's disk until it ends, or for `FULL_S` seconds."""
    if not world.cluster.has_small_disk:
        return
    with world.cluster.full_disk() as number:
        end = time.monotonic() + FULL_S
        while world.cluster.alive(number) and time.monotonic() < end:
            world.sleep(0.2)
    if not world.cluster.alive(number):
        world.cluster.start_again(number, world.look_after)
    world.cluster.wait_whole(world.look_after)


def unfit_worker(world: World, draw: random.Random, settings: Mapping[str, str]) -> None:
    """Start one more worker that may not join, and end it."""
    unfit = world.supervise("unfit", ("thresholds",), settings=settings)
    try:
        world.sleep(UNFIT_S)
        assert not unfit.ready
    finally:
        unfit.stop()


RESTART_WORKERS = "restart workers one by one"
KILLED_BROKERS: dict[str, Fault] = {
    **{
        f"kill broker {number}": partial(kill_broker, number=number)
        for number in range(1, BROKERS + 1)
    },
    "kill the controller": kill_controller,
    "kill the group's coordinator": kill_coordinator,
}
"""Those after which thresholds have to flow again within the broker's session and some seconds."""
CLUSTER_FAULTS: dict[str, Fault] = {
    **KILLED_BROKERS,
    "pause a broker": pause_broker,
    "restart brokers one by one": restart_brokers,
    RESTART_WORKERS: restart_workers,
    "rebalance again and again": storm_of_rebalances,
    "lose a broker's answers": one_way,
    "fill a broker's disk": full_disk,
    "a worker's clock is 2 h ahead": partial(
        unfit_worker, settings={"PYTHONPATH": str(SHIFTED_CLOCK), "TEST_CLOCK_S": "7200"}
    ),
    "an instance name twice": partial(unfit_worker, settings={"HEADSTART_INSTANCE": "1"}),
}
