"""A database with rows of two tenants, for tests of isolation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate
from sinks.postgres.partitions import ensure_partitions
from tests.databases import made_database
from tests.sinks.isolation.credentials import fill


@pytest.fixture(scope="module")
def filled(postgres_dsn: str) -> Iterator[str]:
    """A database with a row of two tenants in every table, and a partition made by the sink."""
    with made_database(postgres_dsn) as dsn:
        asyncio.run(migrate(dsn))
        asyncio.run(_partition_by_sink(dsn))
        with psycopg.connect(dsn) as owner:
            fill(owner)
            owner.execute(
                "UPDATE episodes SET query = 'cancel', context = '{\"domain\": \"retail\"}', "
                "id = CASE tenant WHEN 'a' THEN 1 ELSE 2 END"
            )
        yield dsn


async def _partition_by_sink(dsn: str) -> None:
    """The role of the sink creates partitions, though it owns no table."""
    async with await connect_postgres(make_conninfo(dsn, user="headstart_sink")) as connection:
        made = await ensure_partitions(connection, date(2026, 1, 1), 0, 1)
    assert made == ["episodic_events_20260101", "episodic_events_20260102"]
