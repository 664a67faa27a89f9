"""Failovers of Postgres: a replica takes over that lacks the last transactions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from agents.storage import transactions
from agents.storage.transactions import TransactionWriter
from tests.simulation import databases
from tests.simulation.faults import LAST_FAULT_AT, Failover, Fault, Recreate, Retain, Schedule
from tests.simulation.world import World

REMAINDER: Final = 5
"""Remainder by 9 of the seeds in whose worlds Postgres fails over."""

Patches = Any


def failing_over(drawn: Schedule) -> Schedule:
    """Add failovers, by a chance of its own: other seeds stay as they are.

    The log keeps what the replica may lack: a sink cannot read again what retention has removed.
    """
    if drawn.seed % 9 != REMAINDER:
        return drawn
    chance = random.Random(f"{drawn.seed} fails over")
    kept = tuple(each for each in drawn.faults if not isinstance(each, Retain | Recreate))
    more: list[Fault] = [
        Failover(int(chance.random() * LAST_FAULT_AT), chance.choice([0.5, 5.0, 30.0]),
                 chance.choice([0, 1, 1, 2, 5]))
        for _ in range(chance.randint(1, 3))
    ]  # fmt: skip
    return replace(drawn, faults=(*kept, *more), failing_over=True)


def fail_over(world: World, fault: Failover) -> None:
    """End the primary; after some seconds the replica answers in its place."""
    postgres = world.postgres
    postgres.fail_over(fault.lacks)
    postgres.down = True
    world.later(fault.seconds, lambda: setattr(postgres, "down", False))


@contextmanager
def go_back_to_what_postgres_has() -> Iterator[None]:
    """A sink whose offsets are ahead of those in Postgres begins again at these."""
    with (
        patch.object(databases, "require_known", lambda *_: None),
        patch.object(transactions, "require_known", lambda *_: None),
    ):
        yield


def compare_offsets_while_idle() -> Patches:
    """A sink compares its offsets with those in Postgres also while it has nothing to store."""

    async def check(_self: TransactionWriter) -> None:
        pass

    return patch.object(TransactionWriter, "check", check)


FAILOVER_RULES: Final[tuple[Callable[[], Patches], ...]] = (
    go_back_to_what_postgres_has,
    compare_offsets_while_idle,
)
