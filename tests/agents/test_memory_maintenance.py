"""The daily maintenance of the memory worker, and what doctor says without it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from agents.memory.maintenance import CHECK_S, FIRST_S, MemoryMaintenance
from console.inspection.doctor.findings import WARNING
from console.inspection.doctor.memory import check_memory
from memory.store.limits import RetentionLimits
from memory.store.maintenance import EVERY_S
from sinks.connections import connect_postgres
from tests.memory.consolidation.repeating import repeated, stored, task
from tests.memory.stored_runs import rows

pytestmark = pytest.mark.integration

LIMITS = RetentionLimits(0, 0, 1)
AGO = "UPDATE memory_maintenance SET finished = now() - %s * interval '1 hour'"


def ago(dsn: str, hours: float) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(AGO, [hours])


def test_it_runs_once_a_day_whatever_worker_does_it(migrated: str) -> None:
    now = 0.0
    stored(migrated, *repeated(4), *task("other", query="Refund", day=9))

    async def steps() -> None:
        nonlocal now
        first, second = (MemoryMaintenance(LIMITS, clock=lambda: now) for _ in range(2))
        async with await connect_postgres(migrated) as connection:

            async def done(each: MemoryMaintenance) -> tuple[int, int]:
                while await each.step(connection):
                    pass
                return each.merged, each.cases

            assert await done(first) == (0, 0), "not at once"
            now = FIRST_S
            assert await done(first) == (3, 1)
            assert await done(second) == (0, 0)
            stored_again = asyncio.to_thread(stored, migrated, *repeated(2, "more", user="u2"))
            await stored_again
            now += CHECK_S
            assert await done(second) == (0, 0), "it was done today"
            await asyncio.to_thread(ago, migrated, 25)
            assert await done(second) == (0, 0), "asked a moment ago"
            now += CHECK_S
            assert await done(second) == (1, 0)
            now += CHECK_S
            assert await done(first) == (3, 1)
            assert first.age_s > 0

    asyncio.run(steps())
    tasks = "SELECT task, counts FROM memory_maintenance ORDER BY 1"
    assert rows(migrated, tasks) == [
        ("consolidate", {"merged": 1, "groups": 1}),
        ("prune", {"days": 0, "runs": 0, "events": 0, "cases": 0}),
    ]


def test_a_failed_step_is_tried_again(migrated: str) -> None:
    """A lock of other work ends the attempt, not the worker."""
    now = 0.0
    stored(migrated, *repeated(3))

    async def steps() -> None:
        nonlocal now
        each = MemoryMaintenance(LIMITS, first_s=0, clock=lambda: now)
        async with (
            await connect_postgres(migrated) as connection,
            await connect_postgres(migrated) as other,
        ):
            await connection.execute("SET lock_timeout = '50ms'")
            async with other.transaction():
                await other.execute("LOCK TABLE episode_vectors IN ACCESS EXCLUSIVE MODE")
                while await each.step(connection):
                    pass
            assert each.merged == 0
            assert each.age_s > EVERY_S, "that it has never run is seen"
            now = CHECK_S
            while await each.step(connection):
                pass
            assert each.merged == 2

    asyncio.run(steps())


def test_doctor_says_that_consolidation_has_not_run(migrated: str) -> None:
    """hindsight #1214: consolidation never ran, and nothing said so."""
    assert [each for each in asyncio.run(check_memory(migrated)) if each.level == WARNING] == []
    stored(migrated, *repeated(2))
    (found,) = [each for each in asyncio.run(check_memory(migrated)) if each.level == WARNING]
    assert found.what == "consolidation has not run yet"
    assert "headstart memory consolidate" in found.remedy

    async def maintain() -> None:
        each = MemoryMaintenance(LIMITS, first_s=0)
        async with await connect_postgres(migrated) as connection:
            while await each.step(connection):
                pass

    asyncio.run(maintain())
    assert [each for each in asyncio.run(check_memory(migrated)) if each.level == WARNING] == []
    ago(migrated, 24 * 3 + 1)
    (found,) = [each for each in asyncio.run(check_memory(migrated)) if each.level == WARNING]
    assert found.what == "consolidation has not run for 3 days"
