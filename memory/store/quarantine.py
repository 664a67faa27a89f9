"""Quarantines episodes of writers beyond the limits, and of floods of low reward.

A quarantined episode is left out: it is not searched, is no evidence, and has no vector. It
stays in its user's list and export, and is purged as any other. What is quarantined is a function
of the stored rows; events are never refused. Rows that two workers store at once may miss each
other: the next `QuarantineSweep` judges them together.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from memory.episodes.record import Episode
from memory.store.limits import WriteLimits
from memory.store.merging import drop_vectors, next_tenant
from sinks.postgres.reading import tenant_scope
from sinks.postgres.statements import load_statements
from sinks.postgres.tenant_locks import lock_tenants

SQL: Final = load_statements("quarantine", Path(__file__).parent / "sql")
FEWEST: Final = 20
"""Runs with a reward of a user in one window below which there is no flood."""
FASTER: Final = 10.0
"""A flood: so many times the runs that other users have in a window on average."""
WINDOWS: Final = 24
"""Windows of which that average is taken, the user's own one the last."""
_ALL: Final = 2**62


class QuarantineChange(NamedTuple):
    """An episode whose state has changed. `reason` None: it is live again."""

    tenant: str
    id: int
    reason: str | None
    support: int


class QuarantinedBatch(NamedTuple):
    """Quarantined episodes of one writer and reason."""

    tenant: str
    user_id: str | None
    session_id: str | None
    """Of runs that name no user. Neither: the runs that name neither are one writer."""
    reason: str
    episodes: int
    reward: float | None
    """Their mean, 0 to 1."""
    first: int
    last: int
    """When the first and the last of them began, Unix ms."""


async def judge_written(
    connection: AsyncConnection[Any],
    written: Iterable[Episode],
    limits: WriteLimits,
    known: Mapping[tuple[str, str, str], tuple[int, int]],
) -> list[QuarantineChange]:
    """Judge the writers of written episodes, in the transaction that wrote them.

    `known`: when those that were there before had begun and ended, Unix ms.
    """
    if not limits.any:
        return []
    users: dict[tuple[str, str], int] = {}
    sessions: dict[tuple[str, str], int] = {}
    unnamed: set[tuple[str, int]] = set()
    for episode in written:
        begun = {episode.started, known.get(episode.key, (episode.started, 0))[0]}
        windows = {each // limits.window_ms * limits.window_ms for each in begun}
        since = min(windows)
        group, name = (
            (users, episode.user_id) if episode.user_id else (sessions, episode.session_id)
        )
        if name:
            key = episode.tenant, name
            group[key] = min(since, group.get(key, since))
        else:
            unnamed |= {(episode.tenant, each) for each in windows}
    if not users and not sessions and not unnamed:
        return []
    return await _judge(connection, limits, "touched", {
        "of": sorted({tenant for tenant, _ in (*users, *sessions, *unnamed)}),
        "tenants": [tenant for tenant, _ in users],
        "users": [name for _, name in users],
        "sinces": list(users.values()),
        "unnamed_tenants": [tenant for tenant, _ in sessions],
        "sessions": [name for _, name in sessions],
        "session_sinces": list(sessions.values()),
        "windows_of": [tenant for tenant, _ in unnamed],
        "window_sinces": [since for _, since in unnamed],
    })  # fmt: skip


async def _judge(
    connection: AsyncConnection[Any], limits: WriteLimits, runs: str, which: dict[str, Any]
) -> list[QuarantineChange]:
    given = {
        **which,
        "user": limits.user or _ALL,
        "session": limits.session or _ALL,
        "unnamed": limits.unnamed or _ALL,
        "window_s": limits.window_s,
        "low_reward": limits.low_reward,
        "fewest": FEWEST,
        "faster": FASTER,
        "windows": WINDOWS,
    }
    statement = SQL["judge"].replace(b"{runs}", SQL[runs])
    rows = await (await connection.execute(statement, given)).fetchall()
    changes = [QuarantineChange(*row) for row in rows]
    await _leave_out(connection, [each for each in changes if each.reason is not None])
    return changes


async def _leave_out(
    connection: AsyncConnection[Any], quarantined: Sequence[QuarantineChange]
) -> None:
    """Drop the vectors of quarantined episodes, and free what they stood for."""
    by_tenant: dict[str, list[QuarantineChange]] = {}
    for each in quarantined:
        by_tenant.setdefault(each.tenant, []).append(each)
    for tenant, changes in sorted(by_tenant.items()):
        await drop_vectors(connection, tenant, [each.id for each in changes])
        if several := [each.id for each in changes if each.support > 1]:
            await connection.execute(SQL["free_members"], {"tenant": tenant, "ids": several})


async def quarantined_ids(
    connection: AsyncConnection[Any], episodes: Sequence[Episode]
) -> set[tuple[str, int]]:
    """Return tenant and id of those of some stored episodes that are quarantined."""
    which = {"tenants": [e.tenant for e in episodes], "ids": [e.id for e in episodes]}
    return set(await (await connection.execute(SQL["quarantined_of"], which)).fetchall())


class QuarantineSweep:
    """Judges all episodes once, a tenant a step, each in a transaction."""

    def __init__(self, limits: WriteLimits) -> None:
        self.quarantined = self.released = 0
        """Episodes whose state has changed."""
        self._limits, self._after = limits, ""

    async def step(self, connection: AsyncConnection[Any]) -> bool:
        """Judge a tenant; return whether there may be more. Raises psycopg's errors."""
        tenant = await next_tenant(connection, self._after)
        if tenant is None:
            return False
        async with connection.transaction():
            await lock_tenants(connection, [tenant])
            which = {"of": [tenant], "tenant": tenant}
            changes = await _judge(connection, self._limits, "of_tenant", which)
        self._after = tenant
        self.quarantined += sum(each.reason is not None for each in changes)
        self.released += sum(each.reason is None for each in changes)
        return True


async def count_quarantined(connection: AsyncConnection[Any]) -> int:
    """Return how many episodes are quarantined, of all tenants."""
    row = await (await connection.execute(SQL["count"])).fetchone()
    return int(row[0]) if row else 0


async def quarantined_batches(
    connection: AsyncConnection[Any],
    tenant: str | None = None,
    user_id: str | None = None,
    limit: int = 100,
) -> list[QuarantinedBatch]:
    """Return what is quarantined of a tenant, or of all, by writer and reason, newest first."""
    wanted = {"tenant": tenant, "user_id": user_id, "limit": limit}
    async with (
        tenant_scope(connection, tenant),
        connection.cursor(row_factory=class_row(QuarantinedBatch)) as cursor,
    ):
        await cursor.execute(SQL["batches"], wanted)
        return await cursor.fetchall()


async def release(
    connection: AsyncConnection[Any],
    tenant: str,
    *,
    user_id: str | None = None,
    session_id: str | None = None,
    unnamed: bool = False,
) -> int:
    """Release the quarantined episodes of a user, a session, or a whole tenant; return how many.

    `unnamed`: those that name neither user nor session.

    The release is stored: what began up to now, or up to the last of them, is not quarantined
    again, by a rebuild either. Raises psycopg's `InsufficientPrivilege` for a role that only reads.
    """
    which = {"tenant": tenant, "user_id": user_id, "session_id": session_id, "unnamed": unnamed}
    async with connection.transaction():
        await lock_tenants(connection, [tenant])
        rows = await (await connection.execute(SQL["release"], which)).fetchall()
        if rows:
            to = max(int(time.time() * 1000), *(begun for (begun,) in rows))
            counts: dict[str, Any] = {"to": to, "session": session_id, "episodes": len(rows)}
            if unnamed:
                counts["unnamed"] = True
            await connection.execute(SQL["note_release"], {**which, "counts": Jsonb(counts)})
    return len(rows)
