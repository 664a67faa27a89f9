"""Late events of packed runs: the worker reads their traces while it reads rows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agents.memory.assembling import assemble_next
from sinks.connections import connect_postgres
from sinks.postgres.packing.writing import train_for
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import event, rows, run, store
from tests.sinks.packed_runs import packed

pytestmark = pytest.mark.integration

RUNS = 200
"""Enough for a dictionary."""


async def drain(dsn: str) -> None:
    async with asyncio.timeout(60), target_at(dsn) as target:
        while (await assemble_next(target, 500, 0)).rows:
            pass


def test_a_late_event_joins_a_run_that_was_packed_with_a_dictionary(migrated: str) -> None:
    async def steps() -> None:
        whole: list[list[Any]] = [run("acme", f"r{n}", f"order {n}", steps=4) for n in range(RUNS)]
        for each in whole:
            user = {"user_id": f"u-{each[0]['workflow_id']}"}
            each[:] = [own | user for own in each]
        await store(dsn, *whole)
        await drain(dsn)
        async with await connect_postgres(dsn) as connection:
            assert await train_for(connection, "acme", 86_400) is not None
        assert (await packed(dsn)).runs == RUNS
        await store(dsn, [event("acme", f"r{n}", 9, tool_id="late") for n in (3, 7)])
        await drain(dsn)

    dsn = migrated
    asyncio.run(steps())
    late = "SELECT workflow_id, events FROM episodes WHERE 'late' = ANY (tools) ORDER BY 1"
    assert rows(dsn, late) == [("r3", 6), ("r7", 6)]
