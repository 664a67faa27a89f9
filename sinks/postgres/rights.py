"""Checks the rights of a role beyond writing rows: the sinks create and attach partitions."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from sinks.connections import connect_postgres, postgres_address
from sinks.postgres.statements import load_statements

_SQL = load_statements("rights")


class RightsMissing(RuntimeError):
    """The role lacks rights that the workers need; `statements` grant them."""

    def __init__(self, dsn: str, role: str, statements: list[str]) -> None:
        """Describe in one line what the role of the connection `dsn` lacks."""
        super().__init__(
            f"Postgres at {postgres_address(dsn)}: the role {role} cannot maintain the tables (the "
            "sinks create partitions and write to all of them); run as a superuser or the owner: "
            + "; ".join(statements)
        )
        self.statements = statements


async def missing_rights(connection: AsyncConnection[Any]) -> list[str]:
    """Return the statements that grant what the role lacks, in order; empty if nothing is missing.

    Tables that do not exist yet need none: the role that creates them owns them.
    """
    found = await (await connection.execute(_SQL["missing"])).fetchall()
    return [statement for (statement,) in found]


async def require_rights(dsn: str) -> None:
    """Raise `RightsMissing` if the role of `dsn` lacks rights, or `PostgresUnreachable`."""
    async with await connect_postgres(dsn) as connection:
        if missing := await missing_rights(connection):
            raise RightsMissing(dsn, connection.info.user, missing)


async def require_rights_to_store(connection: AsyncConnection[Any], dsn: str) -> None:
    """Check as `require_rights`, over an open connection to `dsn`.

    A role that may not insert episodes, such as one for monitoring, passes.
    """
    row = await (await connection.execute(_SQL["stores"])).fetchone()
    if row and row[0] and (missing := await missing_rights(connection)):
        raise RightsMissing(dsn, connection.info.user, missing)
