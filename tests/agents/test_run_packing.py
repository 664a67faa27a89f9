"""Packing of cold runs by the memory worker, and by `headstart memory pack`."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest
from typer.testing import CliRunner

from agents.memory.assembling import assemble_next
from agents.memory.embedding import GuardedEmbedder
from agents.memory.outbox_watch import OutboxWatch
from agents.memory.packing import EVERY_S, FIRST_S, RunPacking
from agents.memory.worker import MemoryWorker
from cli.memory.group import app
from sinks.connections import connect_postgres
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import WordEmbedder, event, rows, run, store
from tests.patience import until_in_loop

pytestmark = pytest.mark.integration

PACKED = "SELECT count(*) FROM episodes WHERE trace IS NOT NULL"


async def stored(dsn: str) -> None:
    await store(dsn, run("a", "1"), run("a", "2"), run("b", "1"))
    async with target_at(dsn) as target:
        await assemble_next(target, 500, 0)


def test_a_sweep_begins_after_a_while_and_then_every_hour(migrated: str) -> None:
    now = 0.0

    async def steps() -> None:
        nonlocal now
        await stored(migrated)
        packing = RunPacking(7, clock=lambda: now)
        never = RunPacking(0, first_s=0, clock=lambda: now)
        async with await connect_postgres(migrated) as connection:
            assert not await packing.step(connection)
            assert packing.runs == 0
            now = FIRST_S
            while await packing.step(connection):
                pass
            assert packing.runs == 3
            await store(migrated, [event("a", "1", 9, "user_feedback")])
            async with target_at(migrated) as target:
                await assemble_next(target, 500, 0)
            assert not await packing.step(connection)
            assert packing.runs == 3
            now += EVERY_S
            while await packing.step(connection):
                pass
            assert packing.runs == 4
            assert not await never.step(connection)

    asyncio.run(steps())


def test_a_damaged_trace_stays_and_the_others_go_on(migrated: str) -> None:
    """Neither a pack nor an assembly replaces what it cannot read."""
    damage = "UPDATE episodes SET trace = '\\x00' WHERE tenant = 'a' AND workflow_id = '1'"

    async def steps() -> None:
        await stored(migrated)
        packing = RunPacking(7, first_s=0)
        async with await connect_postgres(migrated) as connection:
            while await packing.step(connection):
                pass
            await connection.execute(damage)
            before = rows(migrated)
            await store(migrated, [event("a", "1", 9, "user_feedback", success=False)])
            await store(migrated, run("c", "1"))
            worker = MemoryWorker(
                migrated, GuardedEmbedder(WordEmbedder()), OutboxWatch(migrated), debounce_s=0
            )
            working = asyncio.create_task(worker.run())
            try:
                await until_in_loop(lambda: worker.counts.dead_letters == 1 and worker.counts.rows)
            finally:
                worker.stop()
                await working
            assert [row for row in rows(migrated) if row[0] != "c"] == before
            await connection.execute("UPDATE episodes SET events = 5 WHERE tenant = 'a'")
            packing = RunPacking(7, first_s=0)
            while await packing.step(connection):
                pass
            assert packing.runs == 1, "that of c"
        assert len(rows(migrated, "SELECT FROM episodic_events")) == 1
        assert rows(migrated, "SELECT FROM episodes WHERE trace = '\\x00'") == [()]

    asyncio.run(steps())


def test_the_command_says_what_it_would_do_and_does_it(migrated: str) -> None:
    asyncio.run(stored(migrated))

    def ran(*arguments: str) -> dict[str, object]:
        ended = CliRunner().invoke(app, ["pack", *arguments, "--json", "--postgres", migrated])
        assert ended.exit_code == 0, ended.output
        found: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
        return found

    (a, b) = ran("--dry-run")["tenants"]  # type: ignore[misc]
    assert (a["tenant"], a["cold_runs"], a["cold_events"], a["packed_runs"]) == ("a", 2, 8, 0)
    assert rows(migrated, PACKED) == [(0,)]
    assert ran("--older-than", "20000d")["runs"] == 0
    assert ran("--tenant", "b")["runs"] == 1
    assert rows(migrated, PACKED) == [(1,)]
    done = ran()
    assert (done["runs"], done["events"], done["damaged"]) == (2, 8, 0)
    (a, b) = ran("--dry-run")["tenants"]  # type: ignore[misc]
    assert (a["cold_runs"], a["packed_events"], b["packed_runs"]) == (0, 8, 1)
    ended = CliRunner().invoke(app, ["pack", "--older-than", "2h", "--postgres", migrated])
    assert ended.exit_code == 2
    with psycopg.connect(migrated) as connection:
        assert connection.execute("SELECT count(*) FROM episodic_events").fetchone() == (0,)
