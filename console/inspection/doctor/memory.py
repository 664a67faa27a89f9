"""Checks the memory: whether its worker keeps up, and whether the database can have vectors."""

from __future__ import annotations

from typing import Final

from console.inspection.doctor.findings import OK, WARNING, Finding
from memory.store.outbox import outbox_lag
from memory.store.vectors import SQL
from sinks.connections import connect_postgres
from sinks.postgres.memory_schema import installed_pgvector, pgvector_problem

LATE_S: Final = 60.0
"""Older rows of the outbox mean that the worker is away or falls behind."""


async def check_memory(dsn: str) -> list[Finding]:
    """Return the findings; none if Postgres cannot be asked, which other checks report."""
    try:
        async with await connect_postgres(dsn) as connection:
            lag = await outbox_lag(connection)
            row = await (await connection.execute(SQL["has_vectors"])).fetchone()
            version = await installed_pgvector(connection)
    except Exception:  # Postgres is away, or not migrated: that is found already
        return []
    waiting = f"{lag.rows:,} rows wait in the outbox, the oldest for {lag.oldest_s:,.0f} s"
    found = [Finding("memory", OK, waiting if lag.rows else "is up to date")]
    if lag.oldest_s > LATE_S:
        remedy = (
            "start `headstart up` or `headstart worker memory`, or more of them (--instance); if "
            "you want no memory, HEADSTART_MEMORY=false, then TRUNCATE episode_outbox"
        )
        found = [Finding("memory", WARNING, waiting, remedy)]
    if not row or not row[0]:
        why = pgvector_problem(version) or "`headstart migrate` creates the table of vectors"
        found.append(Finding("memory", WARNING, "there is no table of vectors", why))
    return found
