"""Removes deleted rows from Postgres' files: VACUUM, and a new HNSW index where many are gone.

Vacuum repairs an HNSW graph around each deleted vector, which takes longer than building the graph
anew where more than some percent are gone. It is built beside the old one, which searches use
meanwhile (REINDEX CONCURRENTLY); what an interrupted one has left is dropped by the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, sql

from sinks.postgres.statements import load_statements

_SQL = load_statements("reclaiming")

REINDEX_ABOVE: Final = 0.05
"""Share of deleted rows from which an HNSW index is built anew (docs/explanation/memory.md)."""
LEAST_DEAD: Final = 500
"""Deleted rows of a partition from which its index is built anew without being asked for."""


class DeadRows(NamedTuple):
    """A table with deleted rows that are still in its file."""

    table: str
    live: int
    dead: int
    hnsw: str | None
    """Its HNSW index, if it has one."""
    owned: bool
    """Whether the role may vacuum it: Postgres skips other tables with no more than a notice."""

    @property
    def is_sparse(self) -> bool:
        """Whether it has an HNSW index that is better built anew than vacuumed."""
        return self.hnsw is not None and self.dead > REINDEX_ABOVE * (self.live + self.dead)


async def dead_rows(connection: AsyncConnection[Any]) -> list[DeadRows]:
    """Return the tables of events and memory that have deleted rows in their files.

    By the statistics of Postgres, which are about a second old.
    """
    rows = await (await connection.execute(_SQL["dead_rows"])).fetchall()
    return [DeadRows(*row) for row in rows]


async def reclaim(
    connection: AsyncConnection[Any], echo: Callable[[str], None], *, full: bool = False
) -> list[DeadRows]:
    """Vacuum the tables with deleted rows; return what they had. Not within a transaction.

    VACUUM frees their space, in which the bytes stay until other rows take it. `full`: write the
    tables and their indexes anew, each under an exclusive lock, so that no file has the bytes.

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
        if full:
            echo(f"writing {each.table} anew: {each.dead:,} deleted rows")
            await connection.execute(sql.SQL("VACUUM (FULL) {}").format(sql.Identifier(each.table)))
        else:
            await _reclaim(connection, each, echo)
    return found


async def rebuild_indexes(
    connection: AsyncConnection[Any], echo: Callable[[str], None]
) -> list[DeadRows]:
    """Build HNSW indexes of which more than 5 % is deleted anew; return what they had.

    Those with few deleted rows in all are left to autovacuum, which is fast enough. The tables of
    the others are vacuumed as well, which is fast then: the new index has none of the deleted rows.
    Not within a transaction. Raises psycopg's errors.
    """
    rows = await dead_rows(connection)
    sparse = [each for each in rows if each.is_sparse and each.dead >= LEAST_DEAD]
    if others := [each.table for each in sparse if not each.owned]:
        echo(
            f"warning: over {REINDEX_ABOVE:.0%} of {', '.join(others)} is deleted, and the role "
            f"{connection.info.user} may not build their indexes anew: run VACUUM as their owner"
        )
    found = [each for each in sparse if each.owned]
    for each in found:
        await _reclaim(connection, each, echo)
    return found


async def _reclaim(
    connection: AsyncConnection[Any], each: DeadRows, echo: Callable[[str], None]
) -> None:
    if each.hnsw is not None and each.is_sparse:
        unfinished = await connection.execute(_SQL["unfinished_indexes"], {"table": each.table})
        for (index,) in await unfinished.fetchall():
            await connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(index)))
        echo(f"building the index {each.hnsw} anew: {each.dead:,} of its rows are deleted")
        await connection.execute(
            sql.SQL("REINDEX INDEX CONCURRENTLY {}").format(sql.Identifier(each.hnsw))
        )
    echo(f"vacuum of {each.table}: {each.dead:,} deleted rows")
    await connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(each.table)))
