"""Traps of row-level security: each lets a tenant's rows out, or hides its own, if forgotten."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from memory.retrieval.request import MemoryQuery
from memory.retrieval.service import RetrievalService
from memory.store.reading import all_episodes, find_episodes
from sinks.connections import connect_postgres
from sinks.postgres.permissions import PermissionMissing
from sinks.postgres.reading import reading_postgres, tenant_scope
from tests.sinks.isolation.credentials import ROLES
from tests.sinks.isolation.statement_texts import PACKAGES, ROOT

pytestmark = pytest.mark.integration

T = TypeVar("T")
SEEN = "SELECT DISTINCT tenant FROM episodes ORDER BY 1"
LEFT = "SELECT current_setting('headstart.tenant', true), current_user, session_user"


def run(dsn: str, work: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with await connect_postgres(dsn) as connection:
            return await work(connection)

    return asyncio.run(connected())


async def column(connection: AsyncConnection[Any], query: str) -> list[Any]:
    rows = await (await connection.execute(query.encode())).fetchall()
    return [row[0] for row in rows]


@pytest.fixture
def owner(filled: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(filled, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("user", ["postgres", "headstart_reader"])
def test_a_scope_sees_one_tenant_also_for_the_owner(filled: str, user: str) -> None:
    """The owner is not bound by policies, so the scope takes the role of the reader."""

    async def scoped(connection: AsyncConnection[Any]) -> list[Any]:
        async with tenant_scope(connection, "b"):
            return await column(connection, SEEN)

    assert run(make_conninfo(filled, user=user), scoped) == ["b"]


def test_the_owner_alone_sees_all(owner: psycopg.Connection[Any]) -> None:
    with owner.transaction():
        owner.execute("SELECT set_config('headstart.tenant', 'a', true)")
        assert owner.execute(SEEN).fetchall() == [("a",), ("b",)]


def test_nothing_of_a_scope_stays_with_a_pooled_connection(filled: str) -> None:
    async def lent() -> list[Any]:
        async with AsyncConnectionPool(
            filled, kwargs={"autocommit": True}, min_size=1, max_size=1, open=False
        ) as pool:
            async with pool.connection() as connection, tenant_scope(connection, "a"):
                assert await column(connection, SEEN) == ["a"]
            with pytest.raises(ZeroDivisionError):
                async with pool.connection() as connection, tenant_scope(connection, "a"):
                    raise ZeroDivisionError
            async with pool.connection() as connection:
                return list(await (await connection.execute(LEFT)).fetchall())

    assert asyncio.run(lent()) == [("", "postgres", "postgres")]


def test_nothing_of_a_request_stays_with_a_pooled_connection(filled: str) -> None:
    async def asked() -> list[Any]:
        async with RetrievalService(filled, [], timeout_s=60, connections=1) as service:
            found = await service.search(MemoryQuery(text="cancel", tenant="a", mode="lexical"))
            assert len(found.episodes) == 1
            async with service._pool.connection() as connection:
                return list(await (await connection.execute(LEFT)).fetchall())

    assert asyncio.run(asked()) == [("", "postgres", "postgres")]


def test_no_code_sets_the_tenant_of_a_session() -> None:
    calls = []
    for package in PACKAGES:
        for path in [*(ROOT / package).rglob("*.py"), *(ROOT / package).rglob("*.sql")]:
            text = path.read_text(encoding="utf-8")
            calls += re.findall(r"set_config\(\s*'headstart\.tenant',.*?, (\w+)\)", text)
            assert not re.search(r"\bSET\s+(?:SESSION\s+)?headstart\.", text), path
    assert calls
    assert set(calls) == {"true"}


def test_a_tenant_that_was_set_reads_as_an_empty_text_which_is_no_tenant(
    filled: str, owner: psycopg.Connection[Any]
) -> None:
    insert = "INSERT INTO threshold_history VALUES ('', '', 'empty', 1, 1, 1, 1, 1, '', now())"
    owner.execute(insert.encode())
    try:
        with psycopg.connect(
            make_conninfo(filled, user="headstart_reader"), autocommit=True
        ) as reader:
            with reader.transaction():
                reader.execute("SELECT set_config('headstart.tenant', 'a', true)")
            assert reader.execute(
                "SELECT current_setting('headstart.tenant', true)"
            ).fetchone() == ("",)
            assert reader.execute("SELECT tenant FROM threshold_history").fetchall() == []
    finally:
        owner.execute("DELETE FROM threshold_history WHERE tenant = ''")


def test_a_tenant_that_is_set_outside_a_transaction_is_none(filled: str) -> None:
    """`set_config(..., true)` in autocommit ends with its statement; a scope has a transaction."""

    async def bare(connection: AsyncConnection[Any]) -> list[Any]:
        await connection.execute("SELECT set_config('headstart.tenant', 'a', true)")
        return await column(connection, SEEN)

    assert run(make_conninfo(filled, user="headstart_reader"), bare) == []


def test_a_scope_is_refused_within_a_transaction(filled: str) -> None:
    """It would end with that one: the tenant would stay set."""

    async def nested(connection: AsyncConnection[Any]) -> None:
        async with connection.transaction():
            await connection.execute("SELECT 1")
            async with tenant_scope(connection, "a"):
                pass

    with pytest.raises(RuntimeError, match="is in one already"):
        run(filled, nested)


def test_views_must_read_as_their_caller(filled: str, owner: psycopg.Connection[Any]) -> None:
    owner.execute("CREATE VIEW plain AS SELECT tenant FROM episodes")
    owner.execute("CREATE VIEW own WITH (security_invoker) AS SELECT tenant FROM episodes")
    owner.execute("GRANT SELECT ON plain, own TO headstart_reader")
    try:
        with psycopg.connect(make_conninfo(filled, user="headstart_reader")) as reader:
            reader.execute("SELECT set_config('headstart.tenant', 'a', true)")
            assert reader.execute("SELECT tenant FROM own").fetchall() == [("a",)]
            assert len(reader.execute("SELECT tenant FROM plain").fetchall()) == 2  # the trap
    finally:
        owner.execute("DROP VIEW plain, own")


def test_a_role_of_one_tenant_is_told_that_it_does_not_see_all(filled: str) -> None:
    """Row-level security would filter in silence: an export would be taken for complete."""
    reader = make_conninfo(filled, user="headstart_reader")

    async def exported(tenant: str | None) -> list[Any]:
        async with reading_postgres(reader) as connection:
            return [each.tenant async for some in all_episodes(connection, tenant) for each in some]

    assert asyncio.run(exported("a")) == ["a"]
    with pytest.raises(PermissionMissing, match=r"headstart_reader sees one tenant: .*--tenant"):
        asyncio.run(exported(None))


@pytest.mark.parametrize("role", ["headstart_reader", "postgres"])
def test_another_tenants_id_is_not_found(filled: str, role: str) -> None:
    async def found(connection: AsyncConnection[Any]) -> list[str]:
        return [each.tenant for each in await find_episodes(connection, "a", "2")]

    dsn = make_conninfo(filled, user=role)
    assert run(dsn, found) == []


@pytest.mark.parametrize(
    "name", ["a' OR '1'='1", "a'; SET ROLE postgres; --", "%s", "%L", "a%", '"', "a\\", "A", "a "]
)
def test_names_of_tenants_are_data(filled: str, name: str) -> None:
    async def asked() -> list[Any]:
        async with RetrievalService(filled, [], timeout_s=60) as service:
            found = await service.search(MemoryQuery(text="cancel", tenant=name, mode="lexical"))
            assert found.degraded == ()
            return list(found.episodes)

    assert asyncio.run(asked()) == []

    async def seen(connection: AsyncConnection[Any]) -> list[Any]:
        async with tenant_scope(connection, name):
            return await column(connection, SEEN)

    assert run(filled, seen) == []


def test_roles_are_no_more_than_they_should_be(owner: psycopg.Connection[Any]) -> None:
    rows = owner.execute(
        "SELECT rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls"
        " FROM pg_roles WHERE rolname = ANY (%s) ORDER BY 1 DESC",
        [list(ROLES)],
    ).fetchall()
    assert [row[1:5] for row in rows] == [(False,) * 4] * 3
    assert {row[0]: row[5] for row in rows} == {
        "headstart_worker": True, "headstart_sink": True, "headstart_reader": False,
    }  # fmt: skip
