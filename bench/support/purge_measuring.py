"""Measures purges: how long they take for many cases, and how many bytes of a text they leave.

Of cases whose events have rows, and of cases whose events are packed, as those of over a week are.

The database only. Deleting a row touches no index, so the vectors have none here: what an HNSW
index costs afterwards is that of `headstart memory purge --vacuum`.
"""

from __future__ import annotations

import time
from typing import Any, Final

from psycopg import AsyncConnection, sql

from replay.purge.run import look_up_stored
from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate
from sinks.postgres.packing.sweep import PackSweep
from sinks.postgres.purges import erase
from sinks.postgres.tenant_locks import lock_tenants
from topics.control.messages import Purge

CASES: Final = 100_000
EVENTS_OF_A_RUN: Final = 4
OTHERS: Final = 5
"""One case in so many is of another user, and stays."""
TENANT: Final = "bench-purge"
CANARY: Final = "canary-1c0ffee2"
_AT: Final = 1_790_000_000_000
_MONTH_MS: Final = 30 * 86_400_000
_EVENTS: Final = """
    INSERT INTO episodic_events (id, tenant, event_type, workflow_type, workflow_id, user_id,
        timestamp, tool_id, data)
    SELECT gen_random_uuid(), %(tenant)s, 'task_complete', 'type-' || n %% 12, 'run-' || n,
        CASE WHEN n %% %(others)s = 0 THEN 'other' ELSE 'purged' END,
        timestamptz 'epoch' + (%(at)s - n * 1000 + step) * interval '1 millisecond',
        'tool-' || step, jsonb_build_object('query', 'case ' || n || CASE
            WHEN n %% %(others)s = 0 THEN '' ELSE %(canary)s END)
    FROM generate_series(1, %(count)s) AS n, generate_series(1, %(steps)s) AS step
"""
_EPISODES: Final = """
    INSERT INTO episodes (id, tenant, workflow_type, workflow_id, user_id, started, ended, query,
        query_hash, context_hash, events)
    SELECT n, %(tenant)s, 'type-' || n %% 12, 'run-' || n,
        CASE WHEN n %% %(others)s = 0 THEN 'other' ELSE 'purged' END,
        timestamptz 'epoch' + (%(at)s - n * 1000) * interval '1 millisecond',
        timestamptz 'epoch' + (%(at)s - n * 1000 + 9) * interval '1 millisecond',
        'case ' || n || CASE WHEN n %% %(others)s = 0 THEN '' ELSE %(canary)s END, n, n %% 12, 4
    FROM generate_series(1, %(count)s) AS n
"""
_VECTORS: Final = """
    INSERT INTO episode_vectors
    SELECT tenant, id, 1, workflow_type, outcome, ended, id,
        (SELECT array_agg(((id * k) %% 97)::real) FROM generate_series(1, 256) AS k)::halfvec(256)
    FROM episodes WHERE tenant = %(tenant)s
"""
_RETRIEVALS: Final = """
    INSERT INTO memory_retrievals (id, tenant, stage, data)
    SELECT gen_random_uuid(), tenant, 'retrieve',
        jsonb_build_object('episodes', jsonb_build_array(id::text, (id + 1)::text))
    FROM episodes WHERE tenant = %(tenant)s AND id %% 10 = 0
"""


async def measure_purge(dsn: str, cases: int = CASES) -> dict[str, float]:
    """Purge a user of `cases` cases in an empty database; return the figures.

    `purge_100000_s`: seconds until all is deleted and committed, scaled to no other number of
    cases; `canary_bytes`: bytes of the user's text in all rows of all tables afterwards;
    `others_changed`: rows of another user that are not as before.
    """
    await migrate(dsn)
    async with await connect_postgres(dsn) as connection:
        await _fill(connection, cases, _AT)
        others = await _others(connection)
        assert await canary_bytes(connection), "the text is there before"
        took, counts = await _purge(connection, _of_user(_AT))
        assert counts["episodes"] == cases, counts
        return {
            "purge_100000_s": round(took, 3),
            "purged_cases": cases,
            "purged_rows": sum(counts.values()),
            "canary_bytes": await canary_bytes(connection),
            "others_changed": abs(await _others(connection) - others),
        }


async def measure_packed_purge(dsn: str, cases: int = CASES) -> dict[str, float]:
    """Purge a user of `cases` packed cases in an empty database; return the figures.

    `purge_packed_100000_s`: as `purge_100000_s`; `preview_packed_s`: seconds of `--dry-run`'s
    questions before it; `packed_canary_bytes`: bytes of the user's text in all rows afterwards.
    """
    await migrate(dsn)
    async with await connect_postgres(dsn) as connection:
        at = int(time.time() * 1000) - _MONTH_MS
        await _fill(connection, cases, at)
        sweep = PackSweep(0.0)
        while await sweep.step(connection):
            pass
        await connection.execute("VACUUM ANALYZE")
        begun = time.perf_counter()
        _purge_of, events, episodes, _asked = await look_up_stored(connection, _of_user(at))
        looked = time.perf_counter() - begun
        took, counts = await _purge(connection, _of_user(at))
        assert counts["episodes"] == episodes == cases, counts
        assert counts["episodic_events"] == events == cases * EVENTS_OF_A_RUN, counts
        return {
            "purge_packed_100000_s": round(took, 3),
            "preview_packed_s": round(looked, 3),
            "packed_runs": sweep.runs,
            "packed_canary_bytes": await canary_bytes(connection),
        }


def _of_user(at: int) -> Purge:
    return Purge("bench", at + 60_000, TENANT, "purged")


async def _purge(connection: AsyncConnection[Any], purge: Purge) -> tuple[float, dict[str, int]]:
    """Carry out the purge; return its seconds, and rows by table."""
    begun = time.perf_counter()
    async with connection.transaction():
        await lock_tenants(connection, (), [TENANT])
        counts = await erase(connection, purge)
    return time.perf_counter() - begun, counts


async def canary_bytes(connection: AsyncConnection[Any], text: str = CANARY) -> int:
    """Return how many bytes of a text all rows of all tables hold, as a dump would."""
    found = await connection.execute(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition "
        "AND relnamespace = 'public'::regnamespace"
    )
    total = 0
    for (table,) in await found.fetchall():
        counted = sql.SQL(
            "SELECT coalesce(sum(length(x::text) - length(replace(x::text, {text}, ''))), 0) "
            "FROM {table} AS x"
        ).format(text=sql.Literal(text), table=sql.Identifier(table))
        row = await (await connection.execute(counted)).fetchone()
        total += int(row[0]) if row else 0
    return total


async def _fill(connection: AsyncConnection[Any], cases: int, at: int) -> None:
    given = {
        "tenant": TENANT, "others": OTHERS, "at": at, "canary": CANARY, "steps": EVENTS_OF_A_RUN,
        "count": cases * OTHERS // (OTHERS - 1),
    }  # fmt: skip
    await connection.execute("DROP INDEX IF EXISTS episode_vectors_hnsw")
    for statement in (_EVENTS, _EPISODES, _VECTORS, _RETRIEVALS):
        await connection.execute(statement.encode(), given)
    await connection.execute("VACUUM ANALYZE")


async def _others(connection: AsyncConnection[Any]) -> int:
    """Return a sum of hashes of the other user's rows."""
    row = await (
        await connection.execute(
            "SELECT sum(hashtextextended(x::text, 0) / 1000000)::bigint FROM episodes AS x "
            "WHERE user_id = 'other'"
        )
    ).fetchone()
    return int(row[0]) if row else 0
