"""The clocks of a world's hosts: those of workers may be wrong, and Redis' with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.thresholds.sound_clock import FAST_MS

if TYPE_CHECKING:
    from tests.simulation.world import World


def worker_ms(world: World, worker: str) -> int:
    """Return what time it is by a worker's own clock."""
    return world.wall_ms() + world.skews.get(worker, 0)


def redis_ms(world: World, worker: str) -> int:
    """Return Redis' time for a worker: in every other world it is on the worker's host."""
    return worker_ms(world, worker) if world.schedule.seed % 2 else world.wall_ms()


def said_ms(world: World, worker: str) -> int:
    """Return the time that a worker sends to its partitions, 0 if it does not trust its clock."""
    now = worker_ms(world, worker)
    return now if now - redis_ms(world, worker) <= FAST_MS else 0
