"""What profiles let a request find: nothing where the memory is off, else part of the own cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from memory.retrieval.request import MemoryQuery
from memory.retrieval.statements import NO_LIMITS, Filters, statement
from memory.users.profile import ALL_AGENTS, MemoryProfile, effective_profile, off_reason


class ProfileLimits(NamedTuple):
    """What the profiles of a tenant's users let one request find."""

    filters: Filters = NO_LIMITS
    off: str = ""
    """Why nothing is retrieved; "" if something may be."""


async def profile_limits(connection: AsyncConnection[Any], query: MemoryQuery) -> ProfileLimits:
    """Read what holds for a request, within a transaction of its tenant.

    Without a user only cases of users whose memory is off are left out. Filters are given only
    where they leave something out, because they keep a search from the columns of
    `episode_vectors`.
    """
    agent = query.agent_id or ALL_AGENTS
    base = {"tenant": query.tenant, "user_id": query.user_id, "agent_id": agent}
    off = await connection.execute(statement("any_off"), base)
    profile = MemoryProfile(ALL_AGENTS)
    if query.user_id is not None:
        stored = await connection.execute(statement("profiles"), base)
        profile = effective_profile(
            [MemoryProfile(*row) for row in await stored.fetchall()], query.agent_id
        )
        if not profile.enabled:
            return ProfileLimits(off=off_reason(query.user_id))
    ((any_off,),) = await off.fetchall()
    filters = {**NO_LIMITS, "without_off": True if any_off else None}
    if query.user_id is not None:
        filters |= await _own_cases(connection, query, profile)
    return ProfileLimits(filters)


UserProfiles = Mapping[str, Sequence[MemoryProfile]]
"""What users have set, by user; users who have set nothing are not in it."""


async def read_user_profiles(connection: AsyncConnection[Any], tenant: str) -> UserProfiles:
    """Read what all users of a tenant have set, within a transaction of the tenant."""
    found: dict[str, list[MemoryProfile]] = {}
    cursor = await connection.execute(statement("all_profiles"), {"tenant": tenant})
    for user_id, *fields in await cursor.fetchall():
        found.setdefault(user_id, []).append(MemoryProfile(*fields))
    return found


async def _own_cases(
    connection: AsyncConnection[Any], query: MemoryQuery, profile: MemoryProfile
) -> dict[str, Any]:
    own_agent = None if profile.shared else query.agent_id or ALL_AGENTS
    wanted = {
        "tenant": query.tenant, "user_id": query.user_id, "own_agent": own_agent,
        "days": profile.window_days, "size": profile.window_size,
    }  # fmt: skip
    rows = await (await connection.execute(statement("hidden_cases"), wanted)).fetchall()
    ((since, hides),) = rows
    if not hides:
        return {}
    return {"own_user": query.user_id, "own_agent": own_agent, "own_since": since}
