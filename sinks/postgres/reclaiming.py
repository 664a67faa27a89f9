"""Removes deleted rows from Postgres' files: VACUUM, and a new HNSW index where many are gone.

Vacuum repairs an HNSW graph around each deleted vector, which takes longer than building the graph
anew where more than some percent are gone. It is built beside the old one, which searches use
meanwhile (REINDEX CONCURRENTLY); what an interrupted one has left is dropped by the next.

The role needs to own the tables, or since Postgres 17 the right MAINTAIN on them; only the owner
drops what an interrupted build has left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, LiteralString, NamedTuple

from psycopg import AsyncConnection, sql
from psycopg.errors import Diagnostic

from sinks.postgres.statements import load_statements

_SQL = load_statements("reclaiming")

REINDEX_ABOVE: Final = 0.05
"""Share of deleted rows from which an HNSW index is rebuilt (docs/measurements/current.md)."""
LEAST_DEAD: Final = 500
"""Deleted rows of a partition from which its index is maintained without being asked for."""
REMOVES_STATISTICS: Final = (
    "DELETE FROM pg_statistic USING pg_attribute WHERE starelid = attrelid AND staattnum = attnum "
    "AND attstattarget = 0"
)
Upkeep = Literal["rebuild", "vacuum", "none"]
"""`rebuild`: a new index, then VACUUM, which is fast: the new index has none of the deleted rows.
`none`: few rows are deleted, and autovacuum is fast enough."""
Echo = Callable[[str], None]


class DeadRows(NamedTuple):
    """A table with deleted rows that are still in its file."""

    table: str
    live: int
    dead: int
    hnsw: str | None
    """Its HNSW index, if it has one."""
    permitted: bool
    """Whether the role may vacuum it: Postgres skips other tables with no more than a notice."""
    owned: bool
    """Whether the role owns it."""

    @property
    def is_sparse(self) -> bool:
        """Whether it has an HNSW index that is better built anew than vacuumed."""
        return self.hnsw is not None and self.dead > REINDEX_ABOVE * (self.live + self.dead)

    def upkeep(self, least: int = LEAST_DEAD) -> Upkeep:
        """Return what is best done with its HNSW index, by number and share of deleted rows."""
        if self.hnsw is None or self.dead < least:
            return "none"
        return "rebuild" if self.is_sparse else "vacuum"


async def dead_rows(connection: AsyncConnection[Any]) -> list[DeadRows]:
    """Return the tables of events and memory that have deleted rows in their files.

    By the statistics of Postgres, which are about a second old.
    """
    rows = await (await connection.execute(_SQL["dead_rows"])).fetchall()
    return [DeadRows(*row) for row in rows]


async def reclaim(
    connection: AsyncConnection[Any], echo: Echo, *, full: bool = False
) -> list[DeadRows]:
    """Vacuum the tables with deleted rows; return what they had. Not within a transaction.

    VACUUM frees their space, in which the bytes stay until other rows take it. `full`: write the
    tables and their indexes anew, each under an exclusive lock, so that no file has the bytes.
    Rows that an older transaction can see stay then, with a warning.

    Statistics are renewed too, which have users' ids. Of texts there are none since migration 0020;
    what an earlier version has left is named.

    Tables that the role may not vacuum are left out, and named. Raises psycopg's errors.
    """
    rows = await dead_rows(connection)
    found = [each for each in rows if each.permitted]
    if others := [each.table for each in rows if not each.permitted]:
        echo(
            f"warning: not vacuumed, because the role {connection.info.user} does not own them: "
            f"{', '.join(others)}; run VACUUM as their owner"
        )
    for each in found:
        if full:
            echo(f"writing {each.table} anew: {each.dead:,} deleted rows")
            await _write_anew(connection, each.table, echo)
        else:
            await clean(connection, each, "rebuild" if each.is_sparse else "vacuum", echo)
    for parent in await _names(connection, "analyzed_parents", found):
        if connection.info.server_version >= 180_000:
            await _run(connection, "ANALYZE ONLY {}", parent)
        else:
            await _run(connection, "ANALYZE {}", parent)
    if tables := await _names(connection, "old_statistics"):
        echo(
            f"warning: Postgres' statistics still have texts of {', '.join(tables)}; run as a "
            f"superuser: {REMOVES_STATISTICS}"
        )
    return found


async def _write_anew(connection: AsyncConnection[Any], table: str, echo: Echo) -> None:
    kept: list[int] = []

    def note(message: Diagnostic) -> None:  # of VERBOSE: the first number of its detail
        line = (message.message_detail or "").partition("\n")[0]
        kept.extend(int(each) for each in re.findall(r"\d+", line)[:1])

    connection.add_notice_handler(note)
    try:
        await _run(connection, "VACUUM (FULL, ANALYZE, VERBOSE) {}", table)
    finally:
        connection.remove_notice_handler(note)
    if any(kept):
        echo(
            f"warning: {table} still has {max(kept):,} deleted rows, which an older transaction "
            "can see: run the command again when that has ended"
        )


async def _run(connection: AsyncConnection[Any], command: LiteralString, name: str) -> None:
    await connection.execute(sql.SQL(command).format(sql.Identifier(name)))


async def _names(
    connection: AsyncConnection[Any], question: str, found: Sequence[DeadRows] = ()
) -> list[str]:
    of = {"tables": [each.table for each in found]}
    rows = await (await connection.execute(_SQL[question], of)).fetchall()
    return [name for (name,) in rows]


async def maintain_indexes(
    connection: AsyncConnection[Any], echo: Echo, least: int = LEAST_DEAD
) -> list[tuple[DeadRows, Upkeep]]:
    """Rebuild or vacuum HNSW indexes with at least `least` deleted rows; return what was done.

    Which of both depends on the share that is deleted (`DeadRows.upkeep`). Searches go on
    meanwhile. Nothing is done where another session does the same. Not within a transaction. Raises
    psycopg's errors.
    """
    if not await _asked(connection, "alone"):
        echo("another process maintains the indexes of vectors")
        return []
    try:
        rows = [each for each in await dead_rows(connection) if each.upkeep(least) != "none"]
        if others := [each.table for each in rows if not each.permitted]:
            echo(
                f"warning: many vectors of {', '.join(others)} are deleted, and the role "
                f"{connection.info.user} may not maintain their indexes: run VACUUM as their owner"
            )
        return [
            (each, await clean(connection, each, each.upkeep(least), echo))
            for each in rows
            if each.permitted
        ]
    finally:
        if not connection.closed:
            await _asked(connection, "not_alone")


async def _asked(connection: AsyncConnection[Any], question: str) -> bool:
    row = await (await connection.execute(_SQL[question])).fetchone()
    return bool(row and row[0])


async def clean(
    connection: AsyncConnection[Any], each: DeadRows, upkeep: Upkeep, echo: Echo
) -> Upkeep:
    """Rebuild the index of a table and vacuum it, or only that; return which.

    It is not rebuilt while the file has an unfinished index that the role may not drop: every
    attempt that is interrupted would leave another.
    """
    if upkeep == "rebuild" and not await _drop_unfinished(connection, each, echo):
        upkeep = "vacuum"
    if upkeep == "rebuild" and each.hnsw is not None:
        echo(f"building the index {each.hnsw} anew: {each.dead:,} of its rows are deleted")
        await _run(connection, "REINDEX INDEX CONCURRENTLY {}", each.hnsw)
    echo(f"vacuum of {each.table}: {each.dead:,} deleted rows")
    await _run(connection, "VACUUM (ANALYZE) {}", each.table)
    return upkeep


async def _drop_unfinished(connection: AsyncConnection[Any], each: DeadRows, echo: Echo) -> bool:
    """Drop what interrupted builds have left of a table's indexes; return whether all are gone."""
    found = await connection.execute(_SQL["unfinished_indexes"], {"table": each.table})
    left = [name for (name,) in await found.fetchall()]
    if left and not each.owned:
        echo(
            f"warning: an interrupted build has left {', '.join(left)}: run DROP INDEX as the "
            f"owner of {each.table}"
        )
        return False
    for index in left:
        await _run(connection, "DROP INDEX {}", index)
    return True
