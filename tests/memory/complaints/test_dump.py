"""AutoGPT PR 12720, pensyve #283: erasure did not reach copies. A dump has nothing of the user."""

from __future__ import annotations

import asyncio
import subprocess

import psycopg
import pytest

from deploy.local.postgres_install import installation
from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate, read_migrations
from sinks.postgres.reclaiming import REMOVES_STATISTICS, reclaim
from tests.data_files import in_files
from tests.memory.complaints.purging import (
    CANARY,
    everybody,
    filled,
    of_user,
    purged,
    refer_to,
)
from tests.memory.stored_runs import rows
from tests.patience import until

pytestmark = pytest.mark.integration


def dumped(dsn: str) -> bytes:
    """Return what pg_dump writes of schema and data, as a backup has it."""
    program = installation(None) / "bin" / "pg_dump"
    ended = subprocess.run([program, "--dbname", dsn], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def canaries(dump: bytes) -> int:
    """Return how often a dump has the canary, as text or in bytes, which it has in hexadecimal."""
    return dump.count(CANARY.encode()) + dump.count(CANARY.encode().hex().encode())


def test_a_dump_after_a_purge_has_no_byte_of_the_user(migrated: str) -> None:
    filled(migrated, *everybody())
    refer_to(migrated, "mine-1")
    before = dumped(migrated)
    assert canaries(before) > 10
    assert before.count(CANARY.encode().hex().encode()) > 0, "packed calls have it too"
    purged(migrated, of_user())
    after = dumped(migrated)
    assert canaries(after) == 0
    kept = rows(migrated, "SELECT count(*) FROM episodes")[0][0]
    assert kept > 0
    assert b"refund of somebody else" in after


def test_a_full_vacuum_leaves_no_byte_of_the_user_in_the_files(migrated: str) -> None:
    filled(migrated, *everybody())
    with psycopg.connect(migrated, autocommit=True) as owner:
        owner.execute("ANALYZE")  # as autovacuum does: statistics have values of the tables
    assert in_files(migrated, CANARY) > 10
    purged(migrated, of_user())
    done, said = written_anew(migrated)

    def gone() -> bool:
        done.update(written_anew(migrated)[0])  # statistics come when connections have ended
        return in_files(migrated, CANARY) == 0

    until(gone)
    assert "episodes" in done
    assert "warning" not in said


def written_anew(dsn: str) -> tuple[set[str], str]:
    """Rewrite the tables with deleted rows; return their names and the messages."""
    said: list[str] = []

    async def full() -> set[str]:
        async with await connect_postgres(dsn) as connection:
            return {each.table for each in await reclaim(connection, said.append, full=True)}

    return asyncio.run(full()), "\n".join(said)


def test_rows_that_an_older_transaction_sees_are_named(migrated: str) -> None:
    filled(migrated, *everybody())
    with psycopg.connect(migrated) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM schema_migrations")
        purged(migrated, of_user())
        until(lambda: "episodes still has" in written_anew(migrated)[1])
        assert in_files(migrated, CANARY) > 0
    assert "warning" not in written_anew(migrated)[1]


def test_statistics_of_tables_and_partitions_have_no_texts(migrated: str) -> None:
    filled(migrated, *everybody())
    refer_to(migrated, "mine-1")
    with psycopg.connect(migrated, autocommit=True) as owner:
        owner.execute(
            "SELECT add_event_partition((timestamp AT TIME ZONE 'UTC')::date) FROM episodic_events"
        )
        owner.execute("ANALYZE")
        known = owner.execute("SELECT tablename, attname, s::text FROM pg_stats AS s").fetchall()
    assert any(table.startswith("episodic_events_2") for table, _, _ in known)
    assert ("episodes", "user_id") in {(table, column) for table, column, _ in known}
    assert [each[:2] for each in known if CANARY in each[2]] == []


def test_an_update_removes_the_statistics_that_there_are(database: str) -> None:
    *earlier, newest = (each for each in read_migrations() if each.version <= 20)
    asyncio.run(migrate(database, earlier))
    filled(database, *everybody())
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("ANALYZE")
        texts = "SELECT count(*) FROM pg_stats AS s WHERE s::text LIKE '%%' || %s || '%%'"
        assert owner.execute(texts, [CANARY]).fetchone() != (0,)
        asyncio.run(migrate(database, [*earlier, newest]))
        assert owner.execute(texts, [CANARY]).fetchone() == (0,)


def test_statistics_that_an_earlier_version_left_are_named_with_the_remedy(migrated: str) -> None:
    filled(migrated, *everybody())
    with psycopg.connect(migrated, autocommit=True) as owner:
        owner.execute("ALTER TABLE episodes ALTER query SET STATISTICS 10")
        owner.execute("ANALYZE episodes")
        owner.execute("ALTER TABLE episodes ALTER query SET STATISTICS 0")
    _done, said = written_anew(migrated)
    assert f"still have texts of episodes; run as a superuser: {REMOVES_STATISTICS}" in said
    with psycopg.connect(migrated, autocommit=True) as owner:
        owner.execute(REMOVES_STATISTICS.encode())
    assert "statistics" not in written_anew(migrated)[1]


def test_statistics_have_no_keys_of_tenants(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO tenant_keys (tenant, number, master, wrapped)"
            " SELECT 'tenant-' || n, 1, 'm', sha256(n::text::bytea) FROM generate_series(1, 9) AS n"
        )
        owner.execute("ANALYZE tenant_keys")
        columns = owner.execute(
            "SELECT attname::text FROM pg_stats WHERE tablename = 'tenant_keys'"
        ).fetchall()
    assert ("tenant",) in columns
    assert ("wrapped",) not in columns
