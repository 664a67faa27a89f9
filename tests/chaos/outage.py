"""Postgres away for minutes under load: memory, thresholds, and how fast the sink catches up."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from deploy.system import total_lag
from tests.chaos.chaos import QUIET_S, Echo
from tests.chaos.checker import check
from tests.chaos.flow import Flow
from tests.chaos.world import World
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

TENANT = "outage"
LOOK_S = 1.0
DRAIN_S = 600.0


def run(folder: Path, away_s: float, events_per_s: float, echo: Echo) -> dict[str, Any]:
    """Return the figures: MB of the largest worker, seconds, rows/s while catching up."""
    journal = folder / "journal"
    with World(folder / "world") as world:
        journal.mkdir()
        begin = asyncio.run(topic_state(world.addresses.kafka, EVENTS.name)).end
        with Flow(world.addresses.redis, TENANT) as flow:
            world.start_executors(TENANT, journal, events_per_s)
            world.sleep(QUIET_S)
            world.services["postgres"].kill()
            echo(f"Postgres is away for {away_s:.0f} s")
            largest, stalest = _watch(world, flow, away_s)
            world.services["postgres"].start()
            world.stop_executors()
        behind = _lag(world)
        echo(f"Postgres is back; {behind} records behind")
        begun = time.monotonic()
        left = world.drain(DRAIN_S)
        seconds = time.monotonic() - begun
        checked = check(world.addresses, TENANT, journal, dict(begin))
    return {
        "away_s": away_s,
        "events": checked.logged,
        "largest_worker_mb": round(largest),
        "stalest_threshold_s": round(stalest, 1),
        "catch_up_s": round(seconds, 1),
        "left": left,
        "lost": checked.lost,
        "double": checked.double,
        "differing": checked.differing,
    }


def _watch(world: World, flow: Flow, seconds: float) -> tuple[float, float]:
    """Return the largest resident set of a worker, in MB, and the age of the stalest threshold."""
    largest = stalest = 0.0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        world.sleep(LOOK_S)
        largest = max(largest, *(_resident_mb(pid) for pid in world.workers.values()))
        stalest = max(stalest, flow.stalest_s())
    return largest, stalest


def _resident_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(found[0]) / 1024 if found else 0.0


def _lag(world: World) -> int:
    return asyncio.run(total_lag(world.addresses, world.epoch.number))
