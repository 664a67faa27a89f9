"""Reads and sets the profiles of users, in Postgres."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from memory.users.profile import ALL_AGENTS, MemoryProfile, effective_profile, require_window
from sinks.postgres.reading import tenant_scope
from sinks.postgres.statements import load_statements
from sinks.postgres.tenant_locks import lock_tenants

SQL: Final = load_statements("users", Path(__file__).parent / "sql")


async def user_profiles(
    connection: AsyncConnection[Any], tenant: str, user_id: str
) -> list[MemoryProfile]:
    """Return what a user has set, that for all agents first; empty for nothing."""
    async with tenant_scope(connection, tenant):
        return await _stored(connection, tenant, user_id)


async def _stored(
    connection: AsyncConnection[Any], tenant: str, user_id: str
) -> list[MemoryProfile]:
    wanted = {"tenant": tenant, "user_id": user_id}
    rows = await (await connection.execute(SQL["profiles"], wanted)).fetchall()
    return [MemoryProfile(*row) for row in rows]


async def set_profile(
    connection: AsyncConnection[Any],
    tenant: str,
    user_id: str,
    agent_id: str | None = None,
    **changes: Any,
) -> MemoryProfile:
    """Set what a user wants of the memory, for all agents (None) or for one; return the profile.

    `changes`: fields of `MemoryProfile`; others stay as they are, or as they are for all agents.
    Waits for a purge of the tenant. The change is audited. Raises `ValueError` for a window out of
    range, and psycopg's `InsufficientPrivilege` for a role that only reads.
    """
    require_window(changes.get("window_size"), changes.get("window_days"))
    agent = agent_id or ALL_AGENTS
    async with connection.transaction():
        await lock_tenants(connection, [tenant])
        stored = await _stored(connection, tenant, user_id)
        own = [each for each in stored if each.agent_id == agent]
        before = own[0] if own else effective_profile(stored, None)
        wanted = before._replace(**changes, agent_id=agent)
        which = {"tenant": tenant, "user_id": user_id}
        await connection.execute(SQL["set_profile"], {**which, **wanted._asdict()})
        counts = Jsonb({"changed": sorted(changes), "of": "one agent" if agent else "all agents"})
        await connection.execute(SQL["audit_profile"], {**which, "counts": counts})
        found = await _stored(connection, tenant, user_id)
    return next(each for each in found if each.agent_id == agent)
