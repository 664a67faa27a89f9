"""A database of its own for each test, on the shared Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sinks.migrate import migrate


@pytest.fixture
def database(postgres_dsn: str) -> Iterator[str]:
    """An empty database of this test's own."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_conninfo(postgres_dsn, dbname=name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def migrated(database: str) -> str:
    """The same, with our tables in it."""
    asyncio.run(migrate(database))
    return database
