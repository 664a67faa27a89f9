"""A rolling upgrade under load: workers and executors of two versions side by side, the checker.

The version before runs from its own tree, with this version's libraries.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from deploy.system import prepare
from tests.chaos.chaos import DRAIN_S, QUIET_S, Echo, failures, verified
from tests.chaos.checker import check
from tests.chaos.earlier import checkout, compile_kernels
from tests.chaos.flow import Flow
from tests.chaos.world import EXECUTORS, PARTITIONS, World
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

TENANT = "upgrade"
MIXED_S = 5.0
"""How long each mixture of versions runs."""


def run(folder: Path, before: str, events_per_s: float, echo: Echo) -> dict[str, Any]:
    """Replace each process of the version `before`, a commit; return what became of the events."""
    tree, journal = checkout(before, folder / "before"), folder / "journal"
    compile_kernels(tree)
    with World(folder / "world", before=tree) as world:
        journal.mkdir()
        begin = asyncio.run(topic_state(world.addresses.kafka, EVENTS.name)).end
        with Flow(world.addresses.redis, TENANT) as flow:
            world.start_executors(TENANT, journal, events_per_s)
            world.sleep(QUIET_S)
            _upgrade(world, echo)
            world.sleep(QUIET_S)
            stalest = flow.take_worst_s()
        world.stop_executors()
        left = world.drain(DRAIN_S)
        checked = check(world.addresses, TENANT, journal, dict(begin))
        echo(f"{checked}, {left} left")
        found = verified(world, echo)
    return {
        "before": before,
        "events": checked.logged,
        "lost": checked.lost,
        "double": checked.double,
        "differing": checked.differing,
        "stalest_threshold_s": round(stalest, 1),
        "workers_failed": len(failures(world.messages)),
        "verify": found,
    }


def _upgrade(world: World, echo: Echo) -> None:
    """Migrate, then replace workers and executors; kill a worker of either version meanwhile."""
    echo("migrating under the workers of the version before")
    asyncio.run(prepare(world.addresses, PARTITIONS))
    world.sleep(MIXED_S)
    world.upgrade("1")
    echo("thresholds workers of two versions")
    world.sleep(MIXED_S)
    world.kill_worker("thresholds-1")  # the version before takes over what this one has written
    world.sleep(MIXED_S)
    world.kill_worker("thresholds-0")
    world.sleep(MIXED_S)
    for number in range(EXECUTORS):
        world.upgrade_executor(number)
        world.sleep(MIXED_S / EXECUTORS)
    world.upgrade("0")
    echo("all processes are of this version")
