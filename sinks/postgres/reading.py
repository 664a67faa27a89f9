"""Opens a database for queries, and explains a missing or old schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from psycopg import AsyncConnection
from psycopg.errors import UndefinedColumn, UndefinedTable

from sinks.connections import connect_postgres, postgres_address
from sinks.service_errors import schema_trouble


class NotMigrated(RuntimeError):
    """The database lacks tables or columns of this version; the message contains the command."""

    def __init__(self, dsn: str, reason: UndefinedTable | UndefinedColumn) -> None:
        what, remedy = schema_trouble(reason)
        super().__init__(f"Postgres at {postgres_address(dsn)} {what}: {remedy}")


@asynccontextmanager
async def reading_postgres(dsn: str) -> AsyncIterator[AsyncConnection[Any]]:
    """Yield an open connection for queries. Raises `PostgresUnreachable` and `NotMigrated`."""
    async with await connect_postgres(dsn) as connection:
        with reporting_schema_errors(dsn):
            yield connection


@contextmanager
def reporting_schema_errors(dsn: str) -> Iterator[None]:
    """Raise `NotMigrated` if a query in the block finds no table or column of this version."""
    try:
        yield
    except (UndefinedTable, UndefinedColumn) as error:
        raise NotMigrated(dsn, error) from error
