"""AutoGPT PR 12720, pensyve #283: erasure did not reach copies. A dump has nothing of the user."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import psycopg
import pytest

from deploy.local.postgres_install import installation
from sinks.connections import connect_postgres
from sinks.postgres.reclaiming import reclaim
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


def in_files(dsn: str) -> int:
    """Return how often the files of a database have the canary, once its pages are written."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("CHECKPOINT")
        backend, base = owner.execute(
            "SELECT pg_backend_pid(), oid FROM pg_database WHERE datname = current_database()"
        ).fetchone() or (0, 0)
        folder = Path(f"/proc/{backend}/cwd/base/{base}")
        return sum(each.read_bytes().count(CANARY.encode()) for each in folder.iterdir())


def test_a_full_vacuum_leaves_no_byte_of_the_user_in_the_files(migrated: str) -> None:
    filled(migrated, *everybody())
    assert in_files(migrated) > 10
    purged(migrated, of_user())

    async def full() -> set[str]:
        async with await connect_postgres(migrated) as connection:
            return {each.table for each in await reclaim(connection, str, full=True)}

    done: set[str] = set()

    def gone() -> bool:
        done.update(asyncio.run(full()))  # statistics come when connections have ended
        return in_files(migrated) == 0

    until(gone)
    assert "episodes" in done
