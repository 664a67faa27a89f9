"""The highest rate that the whole system holds without faults on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.checker import check
from tests.chaos.world import World
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

FIRST_PER_S = 5_000.0
STEP_PER_S = 1_000.0
MOST_PER_S = 40_000.0
STEP_S = 20.0
BEHIND_S = 5.0
"""A rate is held if everything is taken in so soon after the last event."""
DRAIN_S = 120.0

Echo = Callable[[str], None]


def run(folder: Path, echo: Echo) -> dict[str, Any]:
    """Raise the rate step by step until the workers fall behind; return the last one they held."""
    with World(folder / "world") as world:
        held, steps = find_held(world, folder, FIRST_PER_S, echo)
    return {"sustained_per_s": held, "step_s": STEP_S, "steps": steps}


def find_held(
    world: World, folder: Path, first_per_s: float, echo: Echo
) -> tuple[int, list[dict[str, Any]]]:
    """Return the highest rate that a world holds, 0: not even the first, and each step."""
    held, steps, rate = 0, [], first_per_s
    while rate <= MOST_PER_S:
        step = _step(world, folder / f"journal-{rate:.0f}", rate)
        steps.append({"asked": rate, **step})
        echo(
            f"{rate:,.0f} events/s asked, {step['emitted']:,} emitted, {step['behind_s']} s "
            f"behind; an executor waited {step['queued_s']} s for a processor"
        )
        if step["behind_s"] > BEHIND_S or step["emitted"] < 0.95 * rate:
            break
        held, rate = step["emitted"], rate + STEP_PER_S
    return held, steps


def _step(world: World, journal: Path, rate: float) -> dict[str, Any]:
    """Return events emitted a second, and how long it took to take in what was left.

    And for how long an executor was kept from running: where that is most of the step, the rate
    shows what else ran on the machine, not what the system sustains.
    """
    journal.mkdir()
    tenant = journal.name
    begin = asyncio.run(topic_state(world.addresses.kafka, EVENTS.name)).end
    world.start_executors(tenant, journal, rate)
    begun = time.monotonic()
    world.sleep(STEP_S)
    queued_s = world.queued_s()
    world.stop_executors()
    emitting_s = time.monotonic() - begun
    stopped = time.monotonic()
    world.wait_through(DRAIN_S)
    behind_s = time.monotonic() - stopped
    world.drain(DRAIN_S)
    checked = check(world.addresses, tenant, journal, dict(begin))
    assert checked.ok, checked
    return {
        "emitted": round(checked.logged / emitting_s),
        "behind_s": round(behind_s, 1),
        "queued_s": round(queued_s, 1),
    }
