"""A tenant with very many purges, as of memories that users have deleted one by one.

The event sink then reads only those that name a subject of its batch.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from agents.storage import purging
from headstart.events.schema import new_id
from replay.purge.run import look_up_stored
from sinks.connections import connect_postgres
from sinks.postgres.purges import erase, read_purges, read_purges_naming
from sinks.postgres.tenant_locks import lock_tenants
from tests.memory.complaints.purging import Log, filled, of_user, purged, user_run
from tests.memory.stored_runs import rows
from topics.control.messages import Purge
from topics.control.purges import EventSubject

pytestmark = pytest.mark.integration

MANY = """
    INSERT INTO memory_purges (tenant, user_id, workflow_id, at)
    SELECT 'acme', '', 'deleted-' || n, now() FROM generate_series(1, 1000) AS n
"""
STORED = "SELECT tenant, workflow_id FROM episodic_events ORDER BY 1, 2"


def late() -> list[dict[str, Any]]:
    """Return runs that come late: each of the first five is covered in another way."""
    return [
        *user_run("acme", "u1", "of-user", "x"),
        *user_run("acme", "u2", "of-session", "x", session_id="s1"),
        *user_run("acme", "u2", "of-workflow", "x"),
        *user_run("acme", None, "open", "x"),
        *user_run("gone", "u2", "of-tenant", "x"),
        *user_run("acme", "u2", "kept", "x"),
        *user_run("rival", "u1", "of-user", "x"),
    ]


@pytest.mark.parametrize("many", [False, True])
def test_what_comes_late_is_left_out_however_many_purges_there_are(
    migrated: str, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    subjects: list[dict[str, Any]] = [
        {"runs": ("open",)}, {"user_id": None, "session_id": "s1"},
        {"user_id": None, "workflow_id": "of-workflow"},
        {"user_id": None, "tenant": "gone", "whole_tenant": True},
    ]  # fmt: skip
    for number, fields in enumerate(subjects):
        purged(migrated, of_user(**{"id": f"p{number}", **fields}))
    if many:
        with psycopg.connect(migrated) as connection:
            connection.execute(MANY)

    async def refused(*_: Any) -> Any:
        raise AssertionError("few are read at once")

    if not many:
        monkeypatch.setattr(purging, "read_purges_naming", refused)
    log = Log()
    log.write(*late())
    asyncio.run(log.store(migrated))
    kept = [("acme", "kept"), ("rival", "of-user")]
    assert rows(migrated, STORED) == [each for each in kept for _ in range(2)]


def test_a_limit_of_purges_is_kept(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute(MANY)

    async def counts() -> list[int]:
        async with await connect_postgres(migrated) as connection:
            return [len(await read_purges(connection, ["acme"], limit)) for limit in (3, None)]

    assert asyncio.run(counts()) == [3, 1000]


def test_names_that_postgres_refuses_stop_no_sink(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute(MANY)

    async def read() -> list[Any]:
        async with await connect_postgres(migrated) as connection:
            names = [EventSubject("acme", "a\0b", 1, "u\0", None)]
            return await read_purges_naming(connection, ["acme"], names)

    assert asyncio.run(read()) == []


def test_a_purge_that_was_killed_between_two_partitions_is_completed(migrated: str) -> None:
    """The events that name the user are gone by then; others of the same run are left."""
    unnamed = user_run("acme", None, "mine-1", "x", workflow_type="order")
    for each in unnamed:
        each["id"] = new_id()
    filled(migrated, *user_run("acme", "u1", "mine-1", "x"), *unnamed)

    async def reach_first_partition() -> None:
        async with await connect_postgres(migrated) as connection, connection.transaction():
            await lock_tenants(connection, (), ["acme"])
            await erase(connection, of_user(runs=("mine-1",)), types=["refund"])

    async def repeated() -> Purge:
        async with await connect_postgres(migrated) as connection:
            return (await look_up_stored(connection, of_user(id="p2")))[0]

    asyncio.run(reach_first_partition())
    assert rows(migrated, STORED) == [("acme", "mine-1")] * 2
    purge = asyncio.run(repeated())
    assert purge.runs == ("mine-1",)
    purged(migrated, purge)
    assert rows(migrated, STORED) == []
