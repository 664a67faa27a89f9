"""Names the tables with tenant data, and finds what lets a role see more than one tenant."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from psycopg import AsyncConnection

from sinks.postgres.statements import load_statements

_SQL = load_statements("isolation")

TENANT_TABLES: Final = (
    "episodic_events", "threshold_history", "notices", "context_watch", "episodes",
    "episode_vectors", "episode_outbox", "memory_policies", "memory_profiles", "memory_purges",
    "memory_retrievals", "memory_audit", "trace_dictionaries", "tenant_keys",
)  # fmt: skip
"""Every table with a column `tenant`; a test compares it with the catalogue."""
READABLE: Final = (
    "episodic_events", "threshold_history", "notices", "episodes", "episode_vectors",
    "memory_policies", "memory_profiles", "memory_retrievals", "trace_dictionaries", "tenant_keys",
)  # fmt: skip
"""What the role headstart_reader may select from, of one tenant."""
INSERTABLE: Final = ("memory_retrievals",)
"""What it may insert into, for one tenant."""
DEFINERS: Final = (
    "memory_words", "memory_fuzzy", "add_event_partition", "drop_event_partition",
    "memory_drop_packed",
)  # fmt: skip
"""Functions that run as the owner of the tables."""


class IsolationProblem(NamedTuple):
    """Something that lets a role see more than one tenant, and the statement that ends it."""

    level: Literal["warning", "error"]
    what: str
    remedy: str


async def isolation_problems(connection: AsyncConnection[Any]) -> list[IsolationProblem]:
    """Return all problems, the worst kinds first; found in the catalogues, which all may read."""
    given = {
        "tables": list(TENANT_TABLES),
        "readable": list(READABLE),
        "insertable": list(INSERTABLE),
        "definers": list(DEFINERS),
    }
    rows = await (await connection.execute(_SQL["problems"], given)).fetchall()
    return [IsolationProblem(*row) for row in rows]
