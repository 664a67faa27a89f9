"""Connections to Postgres are made with the address that its file holds by then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headstart.connections.secret_variables import secret_variable
from memory.retrieval.service import RetrievalService
from sinks.connections import PostgresUnreachable, connect_postgres
from tests.memory.stored_runs import WordEmbedder
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.integration

USERS = "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database()"


class File:
    """A file with an address, whose user changes: the one before may log in no more."""

    def __init__(self, file: Path, dsn: str) -> None:
        self._file, self._dsn = file, dsn
        self.users: list[str] = []

    def run(self, statement: str) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as admin:
            admin.execute(statement.encode())

    def connected(self) -> set[str]:
        """The users with connections to this database."""
        with psycopg.connect(self._dsn) as admin:
            return {row[0] for row in admin.execute(USERS).fetchall()}

    def rename(self) -> None:
        """Make another user, and end the connections of the one before."""
        before, user = self.users[-1:], f"user_{uuid4().hex}"
        self.run(f"CREATE ROLE {user} SUPERUSER LOGIN")
        self.users.append(user)
        self._file.write_text(make_conninfo(self._dsn, user=user))
        for each in before:
            self.run(f"ALTER ROLE {each} NOLOGIN")
            self.run(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                f"WHERE usename = '{each}'"
            )


@pytest.fixture
def file(tmp_path: Path, migrated: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[File]:
    made = File(tmp_path / "postgres", migrated)
    made.rename()
    monkeypatch.setenv("HEADSTART_POSTGRES_FILE", str(tmp_path / "postgres"))
    yield made
    for user in made.users:
        made.run(f"DROP ROLE {user}")


@pytest.fixture
def dsn(file: File) -> str:
    """The address as a process keeps it that has read the file once."""
    found = secret_variable("HEADSTART_POSTGRES")
    assert found
    return found


def test_a_connection_is_made_with_the_user_that_the_file_names_by_then(
    file: File, dsn: str
) -> None:
    async def user() -> str:
        async with await connect_postgres(dsn) as connection:
            row = await (await connection.execute("SELECT session_user")).fetchone()
            return str(row[0]) if row else ""

    for _ in range(2):
        assert asyncio.run(user()) == file.users[-1]
        file.rename()
    other = f"{dsn} application_name=another"  # from no file
    with pytest.raises(PostgresUnreachable, match="not permitted to log in"):
        asyncio.run(connect_postgres(other))


def test_the_pool_of_the_memory_lives_on(file: File, dsn: str) -> None:
    async def run() -> None:
        async with RetrievalService(dsn, [WordEmbedder()], connections=1) as service:
            for _ in range(2):
                async with asyncio.timeout(PATIENCE_S):
                    while (await service.profiles("a"))[1]:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                assert file.users[-1] in file.connected()
                await asyncio.to_thread(file.rename)

    asyncio.run(run())
