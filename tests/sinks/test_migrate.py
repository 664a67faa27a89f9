"""Migrations: once each, all or nothing, and never over a schema that they do not know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cli.support.options import SettingOptions
from cli.system.migrate import migrate as migrate_command
from console.inspection.doctor.databases import check_postgres
from console.inspection.doctor.findings import ERROR
from console.inspection.snapshot import SystemObserver
from console.inspection.target import InspectionTarget
from sinks.connections import connect_postgres
from sinks.postgres.isolation import TENANT_TABLES
from sinks.postgres.migrate import (
    DatabaseNewer,
    Migration,
    MigrationChanged,
    migrate,
    read_migrations,
)
from sinks.postgres.partitions import ensure_partitions
from sinks.postgres.permissions import PermissionMissing
from sinks.postgres.rights import RightsMissing, require_rights, require_rights_to_store

pytestmark = pytest.mark.integration

ALL = [
    "0001_episodic_events",
    "0002_sink_offsets",
    "0003_threshold_history",
    "0004_notices",
    "0005_lean_indexes",
    "0006_episodic_memory",
    "0007_memory_policies",
    "0008_purges",
    "0009_packed_runs",
    "0010_tenant_isolation",
    "0011_memory_profiles",
    "0012_consolidation",
    "0013_encryption",
    "0014_quarantine",
    "0015_first_calls",
    "0016_unnamed_writers",
    "0017_merged_insights",
    "0018_unused_columns",
    "0019_rights",
    "0020_texts_without_statistics",
    "0021_right_to_unjudge",
]

OWNED = sorted([*TENANT_TABLES, "episodic_events_default"])
"""Tables that the workers' role must own, unless it has BYPASSRLS: see sql/rights.sql."""


def test_migrating_twice_applies_once(database: str) -> None:
    assert asyncio.run(migrate(database)) == ALL
    assert asyncio.run(migrate(database)) == []


def test_concurrent_runs_apply_once(database: str) -> None:
    async def runs() -> list[list[str]]:
        return await asyncio.gather(*(migrate(database) for _ in range(4)))

    assert sorted(asyncio.run(runs())) == [[], [], [], ALL]


def test_a_changed_migration_is_an_error(database: str) -> None:
    asyncio.run(migrate(database))
    first, *others = read_migrations()
    edited = [first._replace(text=first.text + "\n-- edited"), *others]
    with pytest.raises(MigrationChanged, match="0001_episodic_events has changed"):
        asyncio.run(migrate(database, edited))


def test_a_newer_database_is_an_error(database: str) -> None:
    newer = [*read_migrations(), Migration(9000, "later", "SELECT 1")]
    assert asyncio.run(migrate(database, newer)) == [*ALL, "9000_later"]
    with pytest.raises(DatabaseNewer, match="9000_later is unknown here"):
        asyncio.run(migrate(database))


def test_a_failing_run_changes_nothing(database: str) -> None:
    broken = [*read_migrations(), Migration(9000, "broken", "SELECT 1 / 0")]
    with pytest.raises(psycopg.errors.DivisionByZero):
        asyncio.run(migrate(database, broken))
    assert asyncio.run(migrate(database)) == ALL


@pytest.fixture
def plain_role(database: str) -> Iterator[str]:
    """The database as a role sees it that owns it, and may not make the extension."""
    role = sql.Identifier(name := f"plain_{uuid4().hex}")
    own = sql.Identifier(conninfo_to_dict(database)["dbname"])
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'plain'").format(role))
        connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(own, role))
        yield make_conninfo(database, user=name, password="plain")
        connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
        connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(own))
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_a_role_that_only_owns_the_database_can_do_all_where_the_extension_is(
    database: str, plain_role: str
) -> None:
    asyncio.run(migrate(plain_role))
    with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(plain_role) as own:
        own.execute("DROP EXTENSION vector")

    async def made() -> list[str]:
        async with await connect_postgres(plain_role) as connection:
            return await ensure_partitions(connection, date(2026, 1, 1), 0, 1)

    assert asyncio.run(made()) == ["episodic_events_20260101", "episodic_events_20260102"]


@pytest.fixture
def limited_role(database: str) -> Iterator[str]:
    """The database as a role sees it that may connect, and nothing else."""
    role = sql.Identifier(name := f"limited_{uuid4().hex}")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'planted-secret'").format(role))
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        yield make_conninfo(database, user=name, password="planted-secret")
        connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_a_missing_permission_is_one_line_with_the_grant(database: str, limited_role: str) -> None:
    """Follow the remedies, one after the other, until it works."""
    name = str(conninfo_to_dict(limited_role)["user"])

    def refused() -> str:
        with pytest.raises(PermissionMissing) as caught:
            asyncio.run(migrate(limited_role))
        assert "\n" not in str(caught.value)
        assert "planted-secret" not in str(caught.value)
        return str(caught.value).rpartition(": ")[2]

    with psycopg.connect(database, autocommit=True) as connection:
        grant = refused()
        assert grant == f"GRANT USAGE, CREATE ON SCHEMA public TO {name}"
        connection.execute(grant.encode())
        asyncio.run(migrate(limited_role))


def test_tables_of_another_role_are_named_with_the_grant(database: str, limited_role: str) -> None:
    asyncio.run(migrate(database))
    with pytest.raises(PermissionMissing, match="GRANT ALL ON ALL TABLES IN SCHEMA public TO"):
        asyncio.run(migrate(limited_role))


@pytest.fixture
def writing_role(migrated: str, limited_role: str) -> str:
    """The migrated database as a role sees it that may write to every table, and owns none."""
    name = sql.Identifier(str(conninfo_to_dict(limited_role)["user"]))
    grant = sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA public TO {}").format(name)
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(grant)
    return limited_role


async def _required_to_store(dsn: str) -> None:
    async with await connect_postgres(dsn) as connection:
        await require_rights_to_store(connection, dsn)


async def _partitions(dsn: str) -> list[str]:
    async with await connect_postgres(dsn) as connection:
        return await ensure_partitions(connection, date(2026, 1, 1), 0, 0)


def test_a_writing_role_gets_all_missing_grants_at_once(migrated: str, writing_role: str) -> None:
    """One that migrates without error, and could not create the partitions of the next days."""
    assert asyncio.run(migrate(writing_role)) == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        asyncio.run(_partitions(writing_role))
    with pytest.raises(RightsMissing) as caught:
        asyncio.run(_required_to_store(writing_role))
    role = conninfo_to_dict(writing_role)["user"]
    assert caught.value.statements == [
        f"GRANT USAGE, CREATE ON SCHEMA public TO {role}",
        *(f"ALTER TABLE public.{table} OWNER TO {role}" for table in OWNED),
        f"ALTER FUNCTION public.add_event_partition OWNER TO {role}",
    ]
    with psycopg.connect(migrated, autocommit=True) as connection:
        for statement in caught.value.statements:
            connection.execute(statement.encode())
    asyncio.run(require_rights(writing_role))
    assert asyncio.run(_partitions(writing_role)) == ["episodic_events_20260101"]


def test_a_role_without_rights_gets_all_missing_grants_at_once(
    migrated: str, limited_role: str
) -> None:
    asyncio.run(_required_to_store(limited_role))  # it stores nothing
    with pytest.raises(RightsMissing) as caught:
        asyncio.run(require_rights(limited_role))
    assert "planted-secret" not in str(caught.value)
    with psycopg.connect(migrated, autocommit=True) as connection:
        for statement in caught.value.statements:
            connection.execute(statement.encode())
    asyncio.run(require_rights(limited_role))
    asyncio.run(migrate(limited_role))
    assert asyncio.run(_partitions(limited_role)) == ["episodic_events_20260101"]


@pytest.mark.parametrize("json", [False, True])
def test_the_command_fails_and_names_the_statements(
    writing_role: str, capsys: pytest.CaptureFixture[str], *, json: bool
) -> None:
    with pytest.raises(RightsMissing, match=r"ALTER TABLE public\.episodic_events OWNER TO"):
        migrate_command(SettingOptions(postgres=writing_role), json=json)
    assert ("missing_rights" in capsys.readouterr().out) is json


def test_doctor_names_the_statements(writing_role: str) -> None:
    findings, _ = asyncio.run(check_postgres(writing_role, time.time))
    (wrong,) = [each for each in findings if each.level == ERROR]
    assert "ALTER TABLE public.episodic_events OWNER TO" in wrong.remedy


def test_status_names_the_statements(writing_role: str, tmp_path: Path) -> None:
    target = InspectionTarget("127.0.0.1:1", writing_role, "redis://127.0.0.1:1/0", tmp_path)
    look = asyncio.run(SystemObserver(target, contexts=False).take())
    (postgres,) = [each for each in look.services if each.service == "postgres"]
    assert "ALTER TABLE public.episodic_events OWNER TO" in (postgres.error or "")


def test_files_must_be_numbered(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text("SELECT 1")
    with pytest.raises(ValueError, match=r"is not named NNNN_name\.sql"):
        read_migrations(tmp_path)


def test_the_indexes_of_sources_000_and_001_exist(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        found = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE tablename = 'episodic_events'"
        ).fetchall()
    assert {name for (name,) in found} == {
        "episodic_events_pkey",
        "idx_episodic_workflow_time",
        "idx_episodic_tool_time",
        "idx_episodic_rare_type_time",
        "idx_episodic_timestamp",
    }


def test_rights_of_earlier_versions_to_change_the_audit_are_taken_away(database: str) -> None:
    asyncio.run(migrate(database, [each for each in read_migrations() if each.version < 19]))
    ask = """SELECT array_agg(kind || ' ' || name ORDER BY kind, name) FROM
        unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS kind,
        unnest(ARRAY['memory_audit', 'memory_purges']) AS name
        WHERE has_table_privilege('headstart_worker', name, kind)"""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON memory_audit, memory_purges"
            " TO headstart_worker"
        )
        asyncio.run(migrate(database))
        assert owner.execute(ask).fetchone() == (
            ["INSERT memory_audit", "SELECT memory_audit", "SELECT memory_purges"],
        )
