"""Doctor names what lets a role see more than one tenant, and its remedy ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from console.inspection.doctor.findings import OK, WARNING, Finding
from console.inspection.doctor.isolation import check_isolation
from sinks.postgres.isolation import isolation_problems
from sinks.postgres.migrate import migrate
from tests.databases import made_database

pytestmark = pytest.mark.integration

BROKEN = {
    "ALTER TABLE episodes DISABLE ROW LEVEL SECURITY":
        "any role that may read episodes sees all tenants",
    "ALTER TABLE notices DISABLE ROW LEVEL SECURITY":
        "any role that may read notices sees all tenants",
    "ALTER TABLE episode_vectors_3 DISABLE ROW LEVEL SECURITY":
        "any role that may read episode_vectors_3 sees all tenants",
    "ALTER TABLE episodic_events_default DISABLE ROW LEVEL SECURITY":
        "any role that may read episodic_events_default sees all tenants",
    "DROP POLICY tenant ON memory_audit": "nothing limits memory_audit to one tenant",
    "CREATE POLICY more ON episodes USING (true)": "the policy more of episodes lets every role",
    "CREATE POLICY more ON episode_vectors_1 USING (true)": "the policy more of episode_vectors_1",
    "GRANT SELECT ON episode_vectors_0 TO headstart_reader":
        "the role headstart_reader may SELECT episode_vectors_0",
    "GRANT UPDATE, DELETE ON episodes TO headstart_reader":
        "the role headstart_reader may DELETE, UPDATE episodes",
    "GRANT SELECT ON memory_purges TO PUBLIC": "may SELECT memory_purges",
    "CREATE VIEW shown AS SELECT * FROM episodes": "the view shown shows all tenants",
    "GRANT EXECUTE ON FUNCTION memory_words TO PUBLIC": "every role may run memory_words(",
}  # fmt: skip
"""What breaks isolation, and what doctor says of it."""
ROLE_CHANGES = {
    "ALTER ROLE headstart_reader BYPASSRLS": "goes round row-level security (BYPASSRLS)",
    "ALTER ROLE headstart_reader SUPERUSER": "goes round row-level security (SUPERUSER)",
    "ALTER ROLE headstart_sink SUPERUSER": "the role headstart_sink is a superuser",
    "GRANT headstart_worker TO headstart_reader": "may act as headstart_worker, which sees all",
}


@pytest.fixture(scope="module")
def broken(postgres_dsn: str) -> Iterator[psycopg.Connection]:
    with made_database(postgres_dsn) as dsn:
        asyncio.run(migrate(dsn))
        with psycopg.connect(dsn, autocommit=True) as owner:
            yield owner


def findings(owner: psycopg.Connection, user: str = "postgres") -> list[Finding]:
    return asyncio.run(check_isolation(make_conninfo(owner.info.dsn, user=user)))


def test_a_migrated_database_is_in_order(broken: psycopg.Connection) -> None:
    assert [each.level for each in findings(broken)] == [OK]


@pytest.mark.parametrize("statement", BROKEN)
def test_doctor_finds_what_breaks_isolation_and_the_remedy_ends_it(
    broken: psycopg.Connection, statement: str
) -> None:
    broken.execute(statement.encode())
    (found,) = findings(broken)
    assert (found.check, found.level) == ("isolation", "error")
    assert BROKEN[statement] in found.what
    broken.execute(found.remedy.encode())
    assert [each.level for each in findings(broken)] == [OK]
    broken.execute("DROP VIEW IF EXISTS shown")


@pytest.mark.parametrize("statement", ROLE_CHANGES)
def test_doctor_finds_roles_with_too_many_rights(
    broken: psycopg.Connection, statement: str
) -> None:
    """In a transaction: roles are those of all databases of the server."""

    async def look() -> list[str]:
        async with await psycopg.AsyncConnection.connect(broken.info.dsn) as connection:
            await connection.execute(statement.encode())
            found = await isolation_problems(connection)
            for each in found:
                await connection.execute(each.remedy.encode())
            assert await isolation_problems(connection) == []
            await connection.rollback()
            return [each.what for each in found]

    assert any(ROLE_CHANGES[statement] in what for what in asyncio.run(look()))


def test_doctor_finds_that_retrieval_sees_all_tenants(broken: psycopg.Connection) -> None:
    """A role that sees all rows and may not take that of the reader."""
    broken.execute("CREATE ROLE sees_all LOGIN BYPASSRLS")
    try:
        (found,) = findings(broken, "sees_all")
        assert found.level == WARNING
        assert found.what.startswith("sees_all sees all tenants when it searches the memory")
        broken.execute(found.remedy.rpartition(": ")[2].encode())
        assert [each.level for each in findings(broken, "sees_all")] == [OK]
    finally:
        broken.execute("DROP ROLE sees_all")


def test_without_postgres_there_is_no_finding(closed: str) -> None:
    assert asyncio.run(check_isolation(f"postgresql://{closed}/x?connect_timeout=1")) == []
