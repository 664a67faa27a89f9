"""Executors and their shipper killed -9, again and again, while they emit; then the checker."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos.chaos import DRAIN_S, QUIET_S, Echo
from tests.chaos.checker import check
from tests.chaos.world import EXECUTORS, World
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

TENANT = "killing"
PATIENCE_S = 60.0


def run(folder: Path, times: int, events_per_s: float, seed: int, echo: Echo) -> dict[str, Any]:
    """Kill an executor and the shipper `times` times each; return what became of the events."""
    draw, journal = random.Random(seed), folder / "journal"
    with World(folder / "world") as world:
        journal.mkdir()
        begin = asyncio.run(topic_state(world.addresses.kafka, EVENTS.name)).end
        world.start_executors(TENANT, journal, events_per_s)
        world.sleep(QUIET_S)
        shippers = set[int]()
        for done in range(1, times + 1):
            victim = draw.randrange(EXECUTORS)
            wait_for_burst(world, journal / str(victim))
            wait_for_another_shipper(world, shippers)
            first, second = draw.sample(("executor", "shipper"), 2)
            for each in (first, second):
                if each == "executor":
                    world.kill_executor(victim)
                else:
                    shippers.add(kill_shipper(world))
                # At times within the same instant, at times when the successor is at work.
                time.sleep(draw.choice((0.0, 0.0, 0.05, 0.5)))
            if done % 10 == 0:
                echo(f"{done} executors and {len(shippers)} shippers killed")
        world.stop_executors()
        left = world.drain(DRAIN_S)
        checked = check(world.addresses, TENANT, journal, dict(begin))
    echo(f"{checked}")
    return {
        "executors_killed": times,
        "shippers_killed": len(shippers),
        "events": checked.emitted,
        "on_the_log": checked.logged,
        "sent_twice": checked.sent_twice,
        "left": left,
        "lost": checked.lost,
        "double": checked.double,
        "differing": checked.differing,
    }


def shipper_of(world: World) -> int:
    """The process that ships the world's spools; 0 before there was one."""
    try:
        return int((world.spool / "ship.lock").read_bytes()[4:].strip(b"\0 \n") or b"0")
    except FileNotFoundError:
        return 0


def kill_shipper(world: World) -> int:
    """Kill the shipper -9; return which process it was."""
    shipper = shipper_of(world)
    for number, executor in world.executors.items():
        if executor.pid == shipper:  # in a thread, because shared processes ended too soon
            world.kill_executor(number)
            return shipper
    with suppress(ProcessLookupError):
        os.kill(shipper, signal.SIGKILL)
    return shipper


def wait_for_burst(world: World, journal: Path) -> None:
    """Wait until an executor emits, so that it is killed while it does."""
    before = journal.stat().st_size if journal.exists() else 0
    deadline = time.monotonic() + PATIENCE_S
    while not journal.exists() or journal.stat().st_size == before:
        assert time.monotonic() < deadline, f"no executor emits: see {world.folder}"
        world.sleep(0.01)


def wait_for_another_shipper(world: World, killed: set[int]) -> None:
    """Wait until a shipper runs that was not killed."""
    deadline = time.monotonic() + PATIENCE_S
    while shipper_of(world) in {0, *killed}:
        assert time.monotonic() < deadline, f"no shipper runs: see {world.spool}"
        world.sleep(0.01)
