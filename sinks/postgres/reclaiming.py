"""Removes deleted rows from Postgres' files: VACUUM, and a new HNSW index where many are gone.

Vacuum repairs an HNSW graph around each deleted vector, which takes longer than building the graph
anew where more than some percent are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, sql

from sinks.postgres.statements import load_statements

_SQL = load_statements("reclaiming")

REINDEX_ABOVE: Final = 0.05
"""Share of deleted rows from which an HNSW index is built anew (docs/explanation/memory.md)."""


class DeadRows(NamedTuple):
    """A table with deleted rows that are still in its file."""

    table: str
    live: int
    dead: int
    hnsw: str | None
    """Its HNSW index, if it has one."""
    owned: bool
    """Whether the role may vacuum it: Postgres skips other tables with no more than a notice."""


async def dead_rows(connection: AsyncConnection[Any]) -> list[DeadRows]:
    """Return the tables of events and memory that have deleted rows in their files.

    By the statistics of Postgres, which are about a second old.
    """
    rows = await (await connection.execute(_SQL["dead_rows"])).fetchall()
    return [DeadRows(*row) for row in rows]


async def reclaim(connection: AsyncConnection[Any], echo: Callable[[str], None]) -> list[DeadRows]:
    """Vacuum the tables with deleted rows; return what they had. Not within a transaction.

    Tables that the role does not own are left out, and named. Raises psycopg's errors.
    """
    rows = await dead_rows(connection)
    found = [each for each in rows if each.owned]
    if others := [each.table for each in rows if not each.owned]:
        echo(
            f"warning: not vacuumed, because the role {connection.info.user} does not own them: "
            f"{', '.join(others)}; run VACUUM as their owner"
        )
    for each in found:
        name = sql.Identifier(each.table)
        if each.hnsw is not None and each.dead > REINDEX_ABOVE * (each.live + each.dead):
            echo(f"building the index {each.hnsw} anew: {each.dead:,} of its rows are deleted")
            await connection.execute(sql.SQL("REINDEX INDEX {}").format(sql.Identifier(each.hnsw)))
        echo(f"vacuum of {each.table}: {each.dead:,} deleted rows")
        await connection.execute(sql.SQL("VACUUM {}").format(name))
    return found
