"""Opens a database for queries, and explains a missing or old schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from psycopg import AsyncConnection
from psycopg.errors import InsufficientPrivilege, UndefinedColumn, UndefinedTable
from psycopg.pq import TransactionStatus

from sinks.connections import connect_postgres, postgres_address
from sinks.postgres.permissions import PermissionMissing
from sinks.postgres.statements import load_statements
from sinks.service_errors import schema_trouble

_SQL = load_statements("isolation")


class NotMigrated(RuntimeError):
    """The database lacks tables or columns of this version; the message contains the command."""

    def __init__(self, dsn: str, reason: UndefinedTable | UndefinedColumn) -> None:
        what, remedy, _ = schema_trouble(reason)
        super().__init__(f"Postgres at {postgres_address(dsn)} {what}: {remedy}")


@asynccontextmanager
async def reading_postgres(dsn: str) -> AsyncIterator[AsyncConnection[Any]]:
    """Yield an open connection for queries.

    A role that row-level security limits to one tenant is refused what is read beside
    `tenant_scope`, where it would find nothing, or less than there is. Raises
    `PostgresUnreachable`, `NotMigrated` and `PermissionMissing`.
    """
    async with await connect_postgres(dsn) as connection:
        with reporting_schema_errors(dsn):
            await connection.execute("SET row_security = off")
            try:
                yield connection
            except InsufficientPrivilege as error:
                raise PermissionMissing(dsn, error) from error


@asynccontextmanager
async def tenant_scope(connection: AsyncConnection[Any], tenant: str | None) -> AsyncIterator[None]:
    """Let the block see one tenant, as `headstart_reader` if the role may be taken; None: all.

    A transaction of its own: settings of a session would stay when a pool lends the connection
    again. Raises `RuntimeError` within a transaction, whose end would come later.
    """
    if tenant is None:
        yield
        return
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise RuntimeError("tenant_scope begins a transaction; the connection is in one already")
    async with connection.transaction():
        await connection.execute(_SQL["one_tenant"], {"tenant": tenant})
        yield


@contextmanager
def reporting_schema_errors(dsn: str) -> Iterator[None]:
    """Raise `NotMigrated` if a query in the block finds no table or column of this version."""
    try:
        yield
    except (UndefinedTable, UndefinedColumn) as error:
        raise NotMigrated(dsn, error) from error
