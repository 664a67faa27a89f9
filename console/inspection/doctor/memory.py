"""Checks the memory: its worker, maintenance, vectors, quarantine and keys of encrypted texts."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from psycopg import AsyncConnection

from console.inspection.doctor.findings import OK, WARNING, Finding
from memory.store.maintenance import OVERDUE_S, last_finished, oldest_packed_s
from memory.store.outbox import outbox_lag
from memory.store.quarantine import quarantined_batches
from memory.store.vectors import SQL
from sinks.connections import connect_postgres
from sinks.postgres.encryption.administration import encryption_state
from sinks.postgres.memory_schema import installed_pgvector, pgvector_problem

LATE_S: Final = 60.0
"""Older rows of the outbox mean that the worker is away or falls behind."""
UNPACKED_S: Final = 7 * 86_400.0
"""Age at which runs are packed, and can be consolidated."""
_BATCHES: Final = 10_000


async def check_memory(dsn: str) -> list[Finding]:
    """Return the findings; none if Postgres cannot be asked, which other checks report."""
    try:
        async with await connect_postgres(dsn) as connection:
            lag = await outbox_lag(connection)
            row = await (await connection.execute(SQL["has_vectors"])).fetchone()
            version = await installed_pgvector(connection)
            late = await _not_consolidated(connection)
            late += await _quarantined(connection)
            encryption = await encryption_state(connection)
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
    return [*found, *late, Finding("encryption", *encryption)]


async def _not_consolidated(connection: AsyncConnection[Any]) -> list[Finding]:
    """Return a finding if runs are there to be consolidated, and none was for two days."""
    last = await last_finished(connection, "consolidate")
    packed_s = await oldest_packed_s(connection)
    if (last is None and packed_s < UNPACKED_S + OVERDUE_S) or (last and last.age_s < OVERDUE_S):
        return []
    since = f"for {last.age_s / 86_400:.0f} days" if last else "yet"
    remedy = (
        "the memory worker does it daily, while nothing waits for it: see that one runs "
        "(`headstart status`), or run `headstart memory consolidate` and `headstart memory prune`"
    )
    return [Finding("memory", WARNING, f"consolidation has not run {since}", remedy)]


async def _quarantined(connection: AsyncConnection[Any]) -> list[Finding]:
    """Return a finding if episodes are quarantined, with their number by reason."""
    counts = Counter[str]()
    writers = set[tuple[str, str | None, str | None]]()
    for each in await quarantined_batches(connection, limit=_BATCHES):
        counts[each.reason] += each.episodes
        writers.add((each.tenant, each.user_id, each.session_id))
    if not counts:
        return []
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts.most_common())
    what = f"{counts.total():,} episodes of {len(writers):,} writers are quarantined ({reasons})"
    remedy = (
        "see whose with `headstart memory quarantine list`; if they may count, `headstart memory "
        "quarantine release`, and raise HEADSTART_USER_CASES, HEADSTART_SESSION_CASES or "
        "HEADSTART_UNNAMED_CASES"
    )
    return [Finding("memory", WARNING, what, remedy)]
