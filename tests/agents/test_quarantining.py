"""The memory worker judges what it assembles at once, and all episodes every hour."""

from __future__ import annotations

import asyncio

import pytest

from agents.memory.quarantining import EVERY_S, FIRST_S, Quarantining
from sinks.connections import connect_postgres
from tests.memory.quarantine.writing import QUARANTINED, assembled, limited, written
from tests.memory.stored_runs import rows

pytestmark = pytest.mark.integration


def test_it_sweeps_every_hour_and_counts_every_minute(migrated: str) -> None:
    now = 0.0
    none, two = limited(), limited(user=2)
    assembled(migrated, none, *written("a", 5), *written("b", 1, tenant="rival"))

    async def steps() -> None:
        nonlocal now
        worker = Quarantining(two, clock=lambda: now)
        async with await connect_postgres(migrated) as connection:

            async def done() -> int:
                while await worker.step(connection):
                    pass
                return worker.total

            assert await done() == 0, "a backlog goes first"
            now = FIRST_S
            assert await done() == 0
            now += 1
            assert await done() == 3, "counted again after a sweep that changed something"
            await asyncio.to_thread(assembled, migrated, none, *written("a", 1, begin=5))
            now += EVERY_S - 2
            assert await done() == 3
            now += 2
            await done()
            assert len(await asyncio.to_thread(rows, migrated, QUARANTINED)) == 4
            assert worker.released == 0

    asyncio.run(steps())
