"""Checks that the database separates tenants: row-level security, and rights of the reader."""

from __future__ import annotations

from console.inspection.doctor.findings import OK, Finding
from sinks.connections import connect_postgres
from sinks.postgres.isolation import isolation_problems


async def check_isolation(dsn: str) -> list[Finding]:
    """Return the findings; none if Postgres cannot be asked, which other checks report."""
    try:
        async with await connect_postgres(dsn) as connection:
            problems = await isolation_problems(connection)
    except Exception:  # Postgres is away: that is found already
        return []
    if not problems:
        return [Finding("isolation", OK, "the database separates tenants")]
    return [Finding("isolation", level, what, remedy) for level, what, remedy in problems]
