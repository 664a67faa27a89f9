"""A log recreated under two threshold workers, of which one lost partitions to the other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from agents.thresholds.adoption import Adoption
from sinks.redis.last_owners import LastOwner
from tests.simulation.faults import Rebalance, Rebuild, Recreate, Redis, Retain, Schedule
from tests.simulation.run import run, schedule_of
from tests.simulation.wiring import simulated

SEEDS = range(16)


def plans() -> Iterator[Schedule]:
    """Return schedules of Redis with its notes, and a log from its beginning."""
    for seed in SEEDS:
        plan, chance = schedule_of(seed), random.Random(f"{seed} recreated")
        if any(isinstance(fault, Rebuild | Retain) for fault in plan.faults):
            continue
        kept = [
            fault
            for fault in plan.faults
            if not isinstance(fault, Recreate)
            and not (isinstance(fault, Redis) and fault.how != "down")
        ]
        more = Rebalance(chance.randint(30, 150), "thresholds"), Recreate(chance.randint(80, 200))
        yield replace(plan, workers=2, faults=(*kept, *more))


def wrong() -> dict[int, list[str]]:
    with simulated():
        found = {plan.seed: run(plan).wrong for plan in plans()}
    return {seed: what for seed, what in found.items() if what}


def test_what_the_last_owner_learned_is_taken_over() -> None:
    assert wrong() == {}


def test_without_notes_earlier_copies_are_taken_for_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The negative control: the rule is what keeps the runs above exact."""

    async def none(_self: Adoption, *, required: bool) -> Mapping[int, LastOwner]:
        return {}

    monkeypatch.setattr(Adoption, "_read_owners", none)
    assert wrong()
