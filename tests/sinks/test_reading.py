"""A database that was never migrated, or by an older version, is reported with the remedy."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from console.inspection.lag import ask_stored
from console.inspection.learned import ask_moves
from sinks.connections import postgres_address
from sinks.postgres.queries import events_of_workflow
from sinks.postgres.reading import NotMigrated, reading_postgres
from tests.patience import PATIENCE_S
from tests.processes import command_line


async def _read(dsn: str) -> list[dict[str, Any]]:
    async with reading_postgres(dsn) as connection:
        return await events_of_workflow(connection, "default", "w1")


@pytest.mark.integration
def test_no_tables(database: str) -> None:
    message = (
        f"Postgres at {postgres_address(database)} has no tables of Headstart: is it the right "
        "database? `headstart migrate` creates them"
    )
    for ask in (
        lambda connection: events_of_workflow(connection, "default", "w1"),
        lambda connection: ask_stored(connection, 1),
        lambda connection: ask_moves(connection, [("a", "b")]),
    ):
        with pytest.raises(NotMigrated) as caught:
            asyncio.run(_asked(database, ask))
        assert str(caught.value) == message


async def _asked(dsn: str, ask: Callable[[AsyncConnection[Any]], Awaitable[object]]) -> None:
    async with reading_postgres(dsn) as connection:
        await ask(connection)


@pytest.mark.integration
def test_tables_of_an_older_version(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("ALTER TABLE episodic_events RENAME COLUMN workflow_id TO former")
    with pytest.raises(NotMigrated, match="has tables of an older version: `headstart migrate`"):
        asyncio.run(_read(migrated))


@pytest.mark.integration
@pytest.mark.parametrize(
    "command",
    [
        ("memory", "query", "--workflow-id", "w1"),
        ("notices", "list"),
        ("thresholds", "history", "--workflow-type", "refund"),
        ("backtest", "--source", "archive"),
    ],
    ids=" ".join,
)
def test_commands_without_tables_name_migrate(database: str, command: tuple[str, ...]) -> None:
    ended = subprocess.run(
        command_line(*command, "--postgres", database),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert ended.stderr.splitlines()[-1].endswith("`headstart migrate` creates them")
