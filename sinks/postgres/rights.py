"""What a role needs beyond writing rows: daily partitions are made, and attached, while we run."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from sinks.connections import connect_postgres, postgres_address
from sinks.postgres.statements import load_statements

_SQL = load_statements("rights")


class RightsMissing(RuntimeError):
    """The role lacks rights that the workers need; `statements` give them."""

    def __init__(self, dsn: str, role: str, statements: list[str]) -> None:
        """Describe what the role of the connection `dsn` lacks, in one line."""
        super().__init__(
            f"Postgres at {postgres_address(dsn)}: the role {role} cannot keep the tables (the "
            "sinks create partitions and write to all of them); run as a superuser or the owner: "
            + "; ".join(statements)
        )
        self.statements = statements


async def missing_rights(connection: AsyncConnection[Any]) -> list[str]:
    """Return the statements that give the role what it lacks, in their order; empty: nothing.

    Tables that are not there yet need nothing: the role that creates them owns them.
    """
    found = await (await connection.execute(_SQL["missing"])).fetchall()
    return [statement for (statement,) in found]


async def require_rights(dsn: str) -> None:
    """Raise `RightsMissing` where the role of `dsn` lacks rights that the workers need.

    Raises `PostgresUnreachable`.
    """
    async with await connect_postgres(dsn) as connection:
        if missing := await missing_rights(connection):
            raise RightsMissing(dsn, connection.info.user, missing)


async def require_rights_to_store(connection: AsyncConnection[Any], dsn: str) -> None:
    """As `require_rights`, over an open connection to `dsn`.

    A role that may not insert episodes, such as one for monitoring, needs none.
    """
    row = await (await connection.execute(_SQL["stores"])).fetchone()
    if row and row[0] and (missing := await missing_rights(connection)):
        raise RightsMissing(dsn, connection.info.user, missing)
