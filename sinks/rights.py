"""What a role needs beyond writing rows: daily partitions are made, and attached, while we run."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from sinks.connections import connect_postgres, postgres_address
from sinks.statements import load_statements

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


async def require_rights(dsn: str, *, of_readers: bool = True) -> None:
    """Raise `RightsMissing` where the role of `dsn` lacks rights that the workers need.

    `of_readers`: False passes a role that may not insert episodes, such as one for monitoring.
    Raises `PostgresUnreachable`.
    """
    async with await connect_postgres(dsn) as connection:
        if not of_readers:
            row = await (await connection.execute(_SQL["stores"])).fetchone()
            if not (row and row[0]):
                return
        if missing := await missing_rights(connection):
            raise RightsMissing(dsn, connection.info.user, missing)
