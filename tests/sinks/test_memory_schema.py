"""The memory's schema: what only some databases can have, and who sees which rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sinks.connections import connect_postgres
from sinks.postgres import memory_schema
from sinks.postgres.memory_schema import complete_schema, pgvector_problem
from sinks.postgres.migrate import migrate

pytestmark = pytest.mark.integration

ADD_EPISODE = """
    INSERT INTO episodes (id, tenant, workflow_type, workflow_id, started, ended, query, context,
        context_hash, events)
    VALUES (%s, %s, 'refund', 'run', now(), now(), 'cancel my order', '{"domain": "retail"}', 1, 1)
"""
ADD_VECTOR = """
    INSERT INTO episode_vectors VALUES
        (%s, %s, 1, 'refund', 'success', now(), 1, array_fill(.5, ARRAY[256])::halfvec)
"""
PER_TENANT = {
    "episodes": "SELECT tenant FROM episodes",
    "vectors": "SELECT tenant FROM episode_vectors",
    "events": "SELECT tenant FROM episodic_events",
    "words": "SELECT id::text FROM memory_words('cancel', 500)",
    "contexts": """SELECT id::text FROM memory_fuzzy('{"domain": "retail"}', 500)""",
}


async def completed(dsn: str) -> list[str]:
    async with await connect_postgres(dsn) as connection, connection.transaction():
        return await complete_schema(connection)


@pytest.fixture
def two_tenants(migrated: str) -> str:
    with psycopg.connect(migrated) as connection:
        for number, tenant in enumerate(("1", "2"), 1):
            connection.execute(ADD_EPISODE, [number, tenant])
            connection.execute(ADD_VECTOR, [tenant, number])
            connection.execute(
                "INSERT INTO episodic_events (id, tenant, event_type, workflow_type, workflow_id,"
                " timestamp) VALUES"
                " (gen_random_uuid(), %s, 'task_complete', 'refund', 'run', now())",
                [tenant],
            )
    return migrated


@pytest.fixture
def reader(two_tenants: str) -> Iterator[Any]:
    with psycopg.connect(make_conninfo(two_tenants, user="headstart_reader")) as connection:
        yield connection


@pytest.mark.parametrize("query", PER_TENANT.values(), ids=PER_TENANT)
def test_the_reader_sees_one_tenant(reader: Any, query: str) -> None:
    reader.execute("SELECT set_config('headstart.tenant', '1', true)")
    assert reader.execute(query).fetchall() == [("1",)]
    reader.commit()
    assert reader.execute(query).fetchall() == []  # '' from now on, no tenant's name


def test_the_reader_sees_nothing_without_a_tenant(reader: Any) -> None:
    assert reader.execute("SELECT * FROM episodes").fetchall() == []
    with pytest.raises(psycopg.errors.UndefinedObject):
        reader.execute("SELECT * FROM memory_words('cancel', 10)")


def test_the_reader_may_not_write_or_read_partitions(reader: Any) -> None:
    for statement in (
        "DELETE FROM episodes",
        "SELECT * FROM episode_vectors_0",
        "SELECT * FROM episode_outbox",
        "SELECT * FROM memory_purges",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(statement)
        reader.rollback()


def test_running_again_changes_nothing(migrated: str) -> None:
    assert asyncio.run(completed(migrated)) == []


def test_an_old_pgvector_is_refused_and_everything_else_is_made(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_schema, "MIN_PGVECTOR", (99, 0, 0))
    asyncio.run(migrate(database))
    assert "ALTER EXTENSION vector UPDATE" in caplog.text
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('episode_vectors')").fetchone() == (None,)
        connection.execute(ADD_EPISODE, [1, "1"])
    monkeypatch.undo()
    assert asyncio.run(migrate(database)) == []
    with psycopg.connect(database) as connection:
        connection.execute(ADD_VECTOR, ["1", 1])


@pytest.mark.parametrize(
    ("version", "usable"),
    [(None, False), ("0.8.3", False), ("0.7.12", False), ("0.8.4", True), ("1.0", True)],
)
def test_versions_of_pgvector(version: str | None, *, usable: bool) -> None:
    assert (pgvector_problem(version) == "") is usable


def test_a_role_that_may_not_make_roles_gets_the_statements(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(migrate(database))
    statements = {**memory_schema._SQL, "missing_roles": b"SELECT 'headstart_sink'"}
    monkeypatch.setattr(memory_schema, "_SQL", statements)
    with psycopg.connect(database) as connection:
        connection.execute("CREATE ROLE no_roles LOGIN")
        connection.commit()
        try:
            (line,) = asyncio.run(completed(make_conninfo(database, user="no_roles")))
        finally:
            connection.execute("DROP ROLE no_roles")
    assert "CREATE ROLE headstart_sink LOGIN NOSUPERUSER BYPASSRLS" in line
