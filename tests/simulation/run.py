"""One schedule from its beginning to its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from learners.registry import POLICIES
from tests.simulation import checker
from tests.simulation.failovers import failing_over
from tests.simulation.faults import Fault, PortFault, Schedule, schedule
from tests.simulation.injection import inject
from tests.simulation.recreation import false_refusals, recreating
from tests.simulation.transactions import transacting
from tests.simulation.world import World

MOST_STEPS: Final = 60_000
"""A world that is not at rest by then never will be."""
QUIET_S: Final = 60.0
"""How long the world is left alone before it is judged: a round of tidying, of a worker that was
just asked to end and comes back after 20 s."""


@dataclass(frozen=True)
class Result:
    """How a run went."""

    schedule: Schedule
    steps: int
    wrong: list[str]
    trace: list[str]
    world: World
    calm_at: int


def schedule_of(seed: int) -> Schedule:
    """Return the schedule of a seed, over every learner there is."""
    return recreating(failing_over(transacting(schedule(seed, tuple(sorted(POLICIES))))))


def run(plan: Schedule, *, trace: bool = False) -> Result:
    """Run a schedule in a world of its own; call within `wiring.simulated`."""
    world = World(plan, trace=trace)
    with _running(world.loop):
        wrong, trace = _run(world, plan), world.trace or []
        world.close()
    return Result(plan, world.steps, wrong, trace, world, world.calm_at)


@contextmanager
def _running(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


def _run(world: World, plan: Schedule) -> list[str]:
    world.begin()
    _with_faults(world, plan.faults)
    if world.wrong:
        return world.wrong
    _calm(world)
    if not _until(world, lambda: world.at_rest() or world.waits_for_rows()):
        return [*world.wrong, f"not at rest after {world.steps} steps: {world.restless()}"]
    if world.waits_for_rows():
        world.ended_waiting = True
        return [*world.wrong, *false_refusals(world)]
    quiet = world.loop.now + QUIET_S
    if not _until(world, lambda: world.loop.now >= quiet and world.at_rest()):
        return [*world.wrong, f"restless after {world.steps} steps: {world.restless()}"]
    return list(checker.differences(world))


def _with_faults(world: World, faults: tuple[Fault, ...]) -> None:
    timed = [fault for fault in faults if not isinstance(fault, PortFault)]
    timed.sort(key=lambda fault: fault.at, reverse=True)
    while (timed or not world.all_emitted()) and not world.wrong and world.steps < MOST_STEPS:
        while timed and timed[-1].at <= world.steps:
            inject(world, timed.pop())
        world.step()


def _calm(world: World) -> None:
    """End every fault, and let members that left come back."""
    world.note("calm")
    world.calm, world.calm_at = True, world.steps
    world.redis.down = world.postgres.down = False
    world.broker.holes = 0


def _until(world: World, condition: object) -> bool:
    assert callable(condition)
    look = 0
    while world.steps < MOST_STEPS and not world.wrong:
        world.step()
        look += 1
        if look % 8 == 0 and condition():
            return True
    return False
