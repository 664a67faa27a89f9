"""Runs of writers that write a lot, assembled under limits, for tests of quarantine."""

from __future__ import annotations

import asyncio
from typing import Any

from agents.memory.assembling import assemble_next
from memory.store.limits import UNLIMITED_WRITES, WriteLimits
from memory.store.outbox import fill_outbox
from memory.store.quarantine import QuarantineSweep
from sinks.connections import connect_postgres
from tests.memory.consolidation.repeating import Event, task
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import AT, rows, store

HOUR_MS = 3_600_000
BEGIN = AT // HOUR_MS * HOUR_MS
STATES = "SELECT workflow_id, state, quarantine FROM episodes ORDER BY 1"
QUARANTINED = "SELECT workflow_id, quarantine FROM episodes WHERE state = 'quarantined' ORDER BY 1"


def written(
    prefix: str,
    count: int,
    *,
    hour: int = 0,
    begin: int = 0,
    user: str | None = "u1",
    **fields: Any,
) -> list[Event]:
    """Return runs of one user, a second apart from the beginning of a window on."""
    first = BEGIN + hour * HOUR_MS - AT
    return [
        each | {"timestamp": each["timestamp"] + first + (begin + n) * 1_000}
        for n in range(count)
        for each in task(f"{prefix}-{begin + n:03}", user=user, **fields)
    ]


def assembled(dsn: str, limits: WriteLimits, *events: Event, at_once: int = 500) -> None:
    """Store events and assemble their runs under limits, `at_once` rows of the outbox a step."""

    async def run() -> None:
        if events:
            await store(dsn, events)
        async with target_at(dsn) as target:
            while (await assemble_next(target._replace(writes=limits), at_once, 0)).rows:
                pass

    asyncio.run(run())


def swept(dsn: str, limits: WriteLimits) -> QuarantineSweep:
    """Judge all episodes."""

    async def run() -> QuarantineSweep:
        sweep = QuarantineSweep(limits)
        async with await connect_postgres(dsn) as connection:
            while await sweep.step(connection):
                pass
        return sweep

    return asyncio.run(run())


def rebuilt(dsn: str, limits: WriteLimits, at_once: int = 500) -> list[Any]:
    """Delete all episodes, assemble them again from their events, judge them; return the states."""

    async def run() -> None:
        async with await connect_postgres(dsn) as connection:
            await connection.execute("DELETE FROM episodes")
            await connection.execute("DELETE FROM episode_vectors")
            await fill_outbox(connection)

    asyncio.run(run())
    assembled(dsn, limits, at_once=at_once)
    swept(dsn, limits)
    return rows(dsn, STATES)


def limited(
    user: int = 0, session: int = 0, low_reward: float = 0.0, unnamed: int = 0
) -> WriteLimits:
    """Return limits of windows of one hour."""
    return UNLIMITED_WRITES._replace(
        user=user, session=session, low_reward=low_reward, unnamed=unnamed
    )
