"""Repeated runs, stored, assembled and packed, for tests of consolidation and retention."""

from __future__ import annotations

import asyncio
from typing import Any

from agents.memory.assembling import assemble_next
from memory.store.merging import ConsolidationSweep
from memory.store.outbox import fill_outbox
from memory.users.client import UserMemory
from sinks.connections import connect_postgres
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import DAY_MS, event, rows, store
from tests.sinks.packed_runs import packed

Event = dict[str, Any]
STATES = "SELECT workflow_id, state, support, merged_into FROM episodes ORDER BY 1"
LIVE = "SELECT workflow_id, support FROM episodes WHERE state = 'live' ORDER BY 1"
CONTENT = """
    SELECT tenant, workflow_id, workflow_type, id, user_id, started, ended, outcome, reward,
        confidence, query, query_hash, context, first_call, tools, calls, concepts, domains,
        agents_used, response, events, state, support, merged_into
    FROM episodes ORDER BY 1, 2, 3
"""
UNEVEN = """
    SELECT r.workflow_id FROM episodes AS r
    WHERE r.support <> (r.state = 'live')::integer + (
        SELECT count(*) FROM episodes AS m WHERE m.tenant = r.tenant AND m.merged_into = r.id)
    UNION ALL
    SELECT m.workflow_id FROM episodes AS m
    WHERE (m.state = 'merged') <> EXISTS (
        SELECT FROM episodes AS r
        WHERE r.tenant = m.tenant AND r.id = m.merged_into AND r.state = 'live')
"""
"""Episodes whose support is not the number of runs that they stand for."""


def task(
    name: str,
    tenant: str = "acme",
    user: str | None = "u1",
    *,
    day: float = 0,
    query: str = "Cancel order",
    argument: str = "W1",
    outcome: str = "success",
    confidence: float | None = None,
    **more: Any,
) -> list[Event]:
    """Return a run of one call and an end, `day` days after the first."""
    later = round(day * DAY_MS)
    whom: Event = {"user_id": user, **more} if user else dict(more)
    context = {"domain": "retail", "complexity": "low"}
    call = {"arguments": {"order": argument}, "context": context}
    said = {
        "outcome": outcome, "query": query, "response": f"{name} is done", "context": context,
        "concepts": ["order", "refund"],
    }  # fmt: skip
    events = [
        event(tenant, name, 0, tool_id="cancel", success=True, data=call, **whom),
        event(tenant, name, 1, "workflow_complete", data=said, confidence=confidence, **whom),
    ]
    return [each | {"timestamp": each["timestamp"] + later} for each in events]


def repeated(count: int, prefix: str = "run", begin: int = 0, **fields: Any) -> list[Event]:
    """Return equal runs, a day apart from the day `begin` on: `run-00` is the oldest."""
    return [
        each for n in range(count) for each in task(f"{prefix}-{n:02}", day=begin + n, **fields)
    ]


async def assembled(dsn: str) -> None:
    """Assemble what waits in the outbox."""
    async with target_at(dsn) as target:
        while (await assemble_next(target, 500, 0)).rows:
            pass


def stored(dsn: str, *events: Event) -> None:
    """Store events, assemble their runs, and pack them."""

    async def run() -> None:
        await store(dsn, events)
        await assembled(dsn)
        await packed(dsn)

    asyncio.run(run())


def assembled_again(dsn: str) -> None:
    """Assemble all runs from their events, as a rebuild does."""

    async def run() -> None:
        async with await connect_postgres(dsn) as connection:
            await fill_outbox(connection)
        await assembled(dsn)

    asyncio.run(run())


def consolidated(dsn: str, **options: Any) -> ConsolidationSweep:
    """Consolidate, and return the sweep; every support is right afterwards."""

    async def run() -> ConsolidationSweep:
        sweep = ConsolidationSweep(**options)
        async with await connect_postgres(dsn) as connection:
            while await sweep.step(connection):
                pass
        return sweep

    sweep = asyncio.run(run())
    assert rows(dsn, UNEVEN) == []
    return sweep


async def seen_by_user(dsn: str, user: str = "u1") -> list[tuple[Any, ...]]:
    """Return what a user of acme is shown of each run, and what the export has of it."""
    memory = UserMemory(dsn, "127.0.0.1:1", tenant="acme", user_id=user)
    listed = {each.workflow_id: (each.query, each.tools) for each in await memory.memories()}
    lines = [line async for line in memory.export() if line["kind"] == "episode"]
    assert len(lines) == len(listed)
    return [
        (line["workflow_id"], line["query"], line["calls"], line["context"], line["concepts"],
         *listed[line["workflow_id"]])
        for line in lines
    ]  # fmt: skip
