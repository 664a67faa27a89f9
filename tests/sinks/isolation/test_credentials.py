"""What each role may do with each table, partition and function: the complete matrix.

It is driven from the catalogue: a table, role or function that has no entry in `credentials.py`
fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sinks.postgres.isolation import DEFINERS as OWN_DEFINERS
from sinks.postgres.isolation import INSERTABLE, READABLE, TENANT_TABLES
from tests.sinks.isolation.credentials import (
    ALLOWED,
    BEYOND,
    DEFINERS,
    FUNCTIONS,
    GRANTS_BEYOND,
    OPERATIONS,
    PARTITIONS,
    READS,
    ROLES,
    SEES_ALL,
    TABLES,
    WITH_TENANT,
    names,
    try_operation,
)

pytestmark = pytest.mark.integration

Session = psycopg.Connection[Any]


@pytest.fixture
def owner(filled: str) -> Iterator[Session]:
    with psycopg.connect(filled, autocommit=True) as connection:
        yield connection


def session(dsn: str, role: str) -> Session:
    return psycopg.connect(make_conninfo(dsn, user=role), autocommit=True)


def test_everything_in_the_catalogue_has_an_entry(owner: Session) -> None:
    assert set(names(owner, TABLES)) == ALLOWED.keys()
    assert set(names(owner, WITH_TENANT)) == set(TENANT_TABLES)
    assert set(names(owner, DEFINERS)) == FUNCTIONS.keys() == set(OWN_DEFINERS)
    roles = "SELECT rolname FROM pg_roles WHERE rolname LIKE 'headstart%' ORDER BY 1"
    assert set(names(owner, roles)) == set(ROLES)


def test_nothing_else_is_granted_on_columns_and_sequences(owner: Session) -> None:
    """The matrix asks for whole tables."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for role, relation, right, column in owner.execute(GRANTS_BEYOND.encode()):
        found.setdefault((role, relation, right), set()).add(column)
    assert found == BEYOND


def test_doctor_and_the_matrix_agree_on_the_reader() -> None:
    reader = {table: allowed[2] for table, allowed in ALLOWED.items() if table in TENANT_TABLES}
    assert {table for table, may in reader.items() if "select" in may} == set(READABLE)
    assert {table for table, may in reader.items() if "insert" in may} == set(INSERTABLE)


@pytest.mark.parametrize("role", [*ROLES, "nobody"])
def test_each_role_may_do_what_it_needs_and_nothing_else(
    filled: str, owner: Session, role: str
) -> None:
    if role == "nobody":
        owner.execute("CREATE ROLE nobody LOGIN")
    try:
        with session(filled, role) as own:
            for table, allowed in ALLOWED.items():
                may = set() if role == "nobody" else allowed[ROLES.index(role)]
                for operation in OPERATIONS:
                    found = try_operation(own, operation, table)
                    assert (found != "refused") == (operation in may), (role, operation, table)
                    if operation in READS & may and table in TENANT_TABLES:
                        expected = "a:1 b:1" if role in SEES_ALL else "a:1"
                        assert found == expected, (role, operation, table)
    finally:
        if role == "nobody":
            owner.execute("DROP ROLE nobody")


def test_the_reader_adds_rows_of_its_tenant_only(filled: str) -> None:
    with session(filled, "headstart_reader") as own:
        assert try_operation(own, "insert", "memory_retrievals", "a") == "done"
        assert try_operation(own, "insert", "memory_retrievals", "b") == "refused"
        assert try_operation(own, "insert", "memory_retrievals", "") == "refused"


@pytest.mark.parametrize("role", ROLES)
def test_no_role_reaches_a_partition_directly(filled: str, owner: Session, role: str) -> None:
    parts = names(owner, PARTITIONS)
    assert len(parts) == 16 + 3
    with session(filled, role) as own:
        for part in parts:
            for operation in OPERATIONS:
                assert try_operation(own, operation, part) == "refused", (operation, part)


@pytest.mark.parametrize("table", [*TENANT_TABLES, "partitions"])
def test_the_reader_sees_one_tenant_whatever_it_was_granted(
    filled: str, owner: Session, table: str
) -> None:
    """`GRANT ... ON ALL TABLES`, also of partitions: without a policy these show nothing."""
    owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO headstart_reader")
    tables = names(owner, PARTITIONS) if table == "partitions" else [table]
    expected = "nothing" if table == "partitions" else "a:1"
    affected = "0" if table == "partitions" else "1"
    try:
        with session(filled, "headstart_reader") as own:
            for each in tables:
                for operation in ("select", "copy out"):
                    assert try_operation(own, operation, each) == expected, (operation, each)
                for operation in ("update", "delete"):
                    assert try_operation(own, operation, each) == affected, (operation, each)
                assert try_operation(own, "insert", each, "b") == "refused"
                assert try_operation(own, "copy in", each) == "refused"
    finally:
        owner.execute("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM headstart_reader")
        _grant_again(owner)


def _grant_again(owner: Session) -> None:
    for table, (_, _, reader) in ALLOWED.items():
        rights = [each.upper() for each in ("select", "insert") if each in reader]
        if rights:
            grant = "GRANT {} ON {} TO headstart_reader".format(", ".join(rights), table)
            owner.execute(grant.encode())


@pytest.mark.parametrize("role", [*ROLES, "public"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_owner_are_granted_one_by_one(
    owner: Session, name: str, role: str
) -> None:
    may = False if role == "public" else FUNCTIONS[name][ROLES.index(role)]
    rows = owner.execute(
        "SELECT has_function_privilege(%s, oid, 'EXECUTE'), proconfig FROM pg_proc"
        " WHERE proname = %s",
        [role, name],
    ).fetchall()
    assert [row[0] for row in rows] == [may]
    (path,) = rows[0][1]
    assert path.replace(" ", "") == "search_path=pg_catalog,public,pg_temp"


def test_functions_of_the_owner_show_one_tenant(filled: str) -> None:
    calls = (
        "SELECT id FROM memory_words('cancel', 10)",
        'SELECT id FROM memory_fuzzy(\'{"domain": "retail"}\', 10)',
    )
    for role in ("headstart_reader", "headstart_worker"):
        with session(filled, role) as own:
            for call in calls:
                with own.transaction():
                    own.execute("SELECT set_config('headstart.tenant', 'a', true)")
                    assert own.execute(call.encode()).fetchall() == [(1,)]
                assert own.execute(call.encode()).fetchall() == []


def test_no_function_of_the_owner_runs_what_a_caller_defines(filled: str, owner: Session) -> None:
    """An operator or function of the caller's own schema is not found by the fixed search path."""
    owner.execute("CREATE SCHEMA IF NOT EXISTS caller")
    owner.execute("GRANT USAGE, CREATE ON SCHEMA caller TO headstart_reader")
    with session(filled, "headstart_reader") as own:
        own.execute(
            "CREATE FUNCTION caller.memory_passes(e public.episodes, f public.memory_filter)"
            " RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'caller''s function'; END $$"
        )
        own.execute("SET search_path = caller, public")
        own.execute("CREATE TEMP TABLE episodes (tenant text, id bigint)")
        with own.transaction():
            own.execute("SELECT set_config('headstart.tenant', 'a', true)")
            found = own.execute("SELECT id FROM memory_words('cancel', 10)").fetchall()
            assert found == [(1,)]


def test_every_view_reads_as_its_caller(owner: Session) -> None:
    views = sql.SQL(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'v'"
        " AND NOT coalesce(reloptions && ARRAY['security_invoker=true'], false)"
        " AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')"
    )
    assert owner.execute(views).fetchall() == []
