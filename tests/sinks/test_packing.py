"""Packed runs: every reader sees the events as before, the sink stores none of them again."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from agents.memory.assembling import assemble_next
from memory.store.outbox import fill_outbox
from sinks.connections import connect_postgres
from sinks.postgres.archive import archived_count, archived_events, span
from sinks.postgres.packing import writing
from sinks.postgres.packing.trace_format import TraceDamaged
from sinks.postgres.packing.unpacking import PackedSelection, unpack_runs
from sinks.postgres.packing.writing import START, PackedBatch, pack_next, train_for
from sinks.postgres.queries import (
    EventPlace,
    count_events,
    estimate_events,
    event_ids,
    events_not_stored,
    events_of_workflow,
)
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import AT, DAY_MS, event, rows, run, store
from tests.sinks.packed_runs import packed

pytestmark = pytest.mark.integration

EVENTS = "SELECT tenant, id::text FROM episodic_events ORDER BY 1, 2"
EVERY = span(None, None, None, None)
WAITING = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'"""
ODD = {"wide": 1e22, "one": 1.0, "text": "tab\there, line\nhere, \\ and é"}


async def assembled(dsn: str) -> None:
    async with target_at(dsn) as target:
        while (await assemble_next(target, 500, 0)).rows:
            pass


async def everything(dsn: str, ids: list[dict[str, Any]]) -> dict[str, Any]:
    """What each reader of events says."""
    async with await connect_postgres(dsn) as connection:
        part = span(AT + 1_000, AT + 3_000, None, None)
        has = await connection.execute(
            "SELECT workflow_id, kind, memory_has_event(e, ARRAY[kind]) FROM episodes AS e,"
            " unnest(ARRAY['task_complete', 'workflow_complete', 'user_feedback']) AS kind"
            " ORDER BY 1, 2"
        )
        return {
            "all": [e async for some in archived_events(connection, EVERY) for e in some],
            "part": [e async for some in archived_events(connection, part) for e in some],
            "count": await archived_count(connection, span(None, None, "a", None)),
            "part_count": await archived_count(connection, part),
            "run": await events_of_workflow(connection, "a", "1", 3),
            "whole_run": await events_of_workflow(connection, "a", "1"),
            "counts": await count_events(connection, "a"),
            "ids": await event_ids(connection, "a"),
            "missing": await events_not_stored(connection, [
                EventPlace(e["id"], e["tenant"], e["timestamp"], e["workflow_id"]) for e in ids
            ]),
            "types": await has.fetchall(),
        }  # fmt: skip


async def stored(dsn: str) -> list[dict[str, Any]]:
    """Store runs, one with what JSON can hold; return their events, and one that is not stored."""
    guess = event("a", "1", 2, "speculation_start", task_id="t", confidence=0.3, surplus={"x": [1]})
    odd = event("b", "1", 9, data=ODD, session_id='quo"ted \\ {}')
    given = [*run("a", "1"), guess | {"id": event("a", "1", 77)["id"]}, *run("a", "2", None)]
    given += [*run("b", "1"), odd]
    await store(dsn, given)
    await assembled(dsn)
    return [*given, event("a", "9", 1)]


def test_every_reader_sees_the_same_events(migrated: str) -> None:
    async def steps() -> None:
        given = await stored(migrated)
        before = await everything(migrated, given)
        assert len(before["all"]) == len(given) - 1
        assert before["missing"] == [given[-1]["id"]]
        done = await packed(migrated)
        assert (done.runs, done.events) == (3, len(given) - 1)
        assert rows(migrated, EVENTS) == []
        assert await everything(migrated, given) == before
        async with await connect_postgres(migrated) as connection:
            assert await estimate_events(connection) == len(given) - 1

    asyncio.run(steps())


def test_a_record_that_is_read_again_stores_nothing(migrated: str) -> None:
    async def steps() -> None:
        given = await stored(migrated)
        await packed(migrated)
        before = await everything(migrated, given)
        await store(migrated, given[:-1], given[:2], given[3:6])
        assert rows(migrated, EVENTS) == []
        assert rows(migrated, "SELECT * FROM episode_outbox") == []
        late = event("a", "1", 8, "user_feedback")
        await store(migrated, [*given[:3], late])
        assert rows(migrated, EVENTS) == [("a", late["id"])]
        assert len(rows(migrated, "SELECT * FROM episode_outbox")) == 1
        after = await everything(migrated, given)
        assert after["ids"] == before["ids"] | {late["id"]}
        assert after["counts"] == (len(after["ids"]), len(after["ids"]))

    asyncio.run(steps())


def test_a_record_read_again_while_its_run_is_packed_is_stored_once(migrated: str) -> None:
    """The sink waits for the packer's deletion, and its row is a duplicate from then on."""

    async def steps() -> None:
        given = await stored(migrated)
        async with await connect_postgres(migrated) as connection:
            async with connection.transaction():
                assert (await pack_next(connection, START, 0)).runs
                sink = asyncio.create_task(store(migrated, given[:4]))
                with psycopg.connect(migrated, autocommit=True) as watcher:
                    while watcher.execute(WAITING).fetchone() != (1,):
                        await asyncio.sleep(0.01)
                        assert not sink.done()
            await sink
        await packed(migrated)
        assert rows(migrated, EVENTS) == []
        async with await connect_postgres(migrated) as connection:
            count = await count_events(connection, "a")
        assert count.stored == count.distinct == 9

    asyncio.run(steps())


def test_a_late_event_joins_the_packed_ones(migrated: str) -> None:
    async def steps() -> None:
        await stored(migrated)
        before = rows(migrated)
        await packed(migrated)
        late = event("a", "1", 9, "user_feedback", user_id="u2", data={"accepted": False})
        await store(migrated, [late | {"timestamp": AT + 5 * DAY_MS}])
        await assembled(migrated)
        (changed,) = [row for row in rows(migrated) if row not in before]
        assert (changed[1], changed[8], changed[25]) == ("1", 0.5, 6)
        assert (await packed(migrated)).events == 1
        assert rows(migrated, EVENTS) == []
        assert rows(migrated, "SELECT trace_others FROM episodes WHERE trace_others IS NOT NULL"
                    " ORDER BY tenant") == [(["u2"],)]  # fmt: skip
        again = rows(migrated)
        async with await connect_postgres(migrated) as connection:
            await fill_outbox(connection)
        await assembled(migrated)
        assert rows(migrated) == again, "packed runs give the same episodes"

    asyncio.run(steps())


def test_a_rebuild_of_packed_runs_alone_gives_the_same_episodes(migrated: str) -> None:
    async def steps() -> None:
        await stored(migrated)
        before = rows(migrated)
        await packed(migrated)
        with psycopg.connect(migrated) as connection:
            connection.execute("UPDATE episodes SET query = 'damaged', outcome = NULL, events = 1")
        async with await connect_postgres(migrated) as connection:
            assert await fill_outbox(connection) == 3
        await assembled(migrated)
        assert rows(migrated) == before

    asyncio.run(steps())


def test_unpacking_gives_back_the_rows(migrated: str) -> None:
    every = "SELECT * FROM episodic_events ORDER BY tenant, id"

    async def steps() -> None:
        await stored(migrated)
        before = rows(migrated, every)
        await packed(migrated)
        async with await connect_postgres(migrated) as connection:
            async with connection.transaction():
                assert await unpack_runs(connection, PackedSelection("b", user_id="nobody")) == 0
                session = PackedSelection("b", session_id='quo"ted \\ {}')
                assert await unpack_runs(connection, session) == 1
            assert len(rows(migrated, EVENTS)) == 5
            async with connection.transaction():
                assert await unpack_runs(connection, PackedSelection("a", user_id="u1")) == 2
        assert rows(migrated, every) == before
        assert rows(migrated, "SELECT FROM episodes WHERE trace IS NOT NULL") == []

    asyncio.run(steps())


@pytest.mark.parametrize("statement", ["store_traces", "delete_rows"])
def test_a_packer_that_dies_changes_nothing(
    migrated: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The backend is killed before a statement; afterwards another packer does it all."""

    async def steps() -> None:
        given = await stored(migrated)
        before = await everything(migrated, given)
        text = writing.SQL[statement]
        killed = b"DO $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); END $$"
        monkeypatch.setattr(writing, "SQL", {**writing.SQL, statement: killed})
        with pytest.raises(psycopg.OperationalError):
            await packed(migrated)
        assert await everything(migrated, given) == before
        assert rows(migrated, "SELECT FROM episodes WHERE trace IS NOT NULL") == []
        monkeypatch.setattr(writing, "SQL", {**writing.SQL, statement: text})
        assert (await packed(migrated)).runs == 3
        assert await everything(migrated, given) == before

    asyncio.run(steps())


def test_young_runs_and_runs_of_an_import_stay(migrated: str) -> None:
    async def steps() -> None:
        import time

        young = [e | {"timestamp": round(time.time() * 1000)} for e in run("a", "1")]
        await store(migrated, young, run("a", "2"))
        await assembled(migrated)
        with psycopg.connect(migrated) as connection:
            connection.execute("DELETE FROM episodic_events WHERE workflow_id = '2'")
        assert await packed(migrated) == PackedBatch(None)
        assert len(rows(migrated, EVENTS)) == 4

    asyncio.run(steps())


def test_packing_twice_gives_the_same_bytes(migrated: str) -> None:
    async def steps() -> None:
        await stored(migrated)
        await packed(migrated)
        first = rows(migrated, "SELECT id, trace FROM episodes ORDER BY 1")
        async with await connect_postgres(migrated) as connection, connection.transaction():
            await unpack_runs(connection, PackedSelection("a"))
            await unpack_runs(connection, PackedSelection("b"))
        await packed(migrated)
        assert rows(migrated, "SELECT id, trace FROM episodes ORDER BY 1") == first

    asyncio.run(steps())


def test_a_dictionary_is_used_and_a_missing_one_is_reported(migrated: str) -> None:
    async def steps() -> None:
        runs = [
            [e | {"user_id": f"u{n % 9}"} for e in run("a", str(n), f"cancel order {n}", 6)]
            for n in range(60)
        ]
        await store(migrated, [each for one in runs for each in one])
        await assembled(migrated)
        before = await everything(migrated, runs[0])
        async with await connect_postgres(migrated) as connection:
            trained = await train_for(connection, "a", 0)
            assert trained is not None
            assert await train_for(connection, "a", 0) == trained
        assert (await packed(migrated)).runs == 60
        assert await everything(migrated, runs[0]) == before
        with psycopg.connect(migrated) as connection:
            connection.execute("DELETE FROM trace_dictionaries")
        with pytest.raises(TraceDamaged, match=rf"dictionary {trained.id} is missing.*backup"):
            await everything(migrated, runs[0])

    asyncio.run(steps())
