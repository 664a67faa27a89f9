"""Two tenants with the same runs, whose every row carries a mark of its tenant.

Workflow ids, queries and contexts are equal, so whatever forgets the tenant mixes the two; users,
tools, concepts, insights, responses, notices and paths have the mark, so that it is seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

import orjson
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from agents.memory.assembling import StepTarget, assemble_next
from bench.support.made_episodes import EpisodeMaker, MadeEpisode
from sinks.postgres.episodes import EpisodeSink, encode_events
from sinks.postgres.notices import add_notices
from topics.notices.messages import Notice

TENANTS: Final = ("north", "south")
TYPES: Final = 12
PATHS: Final = 20
_ADD_HISTORY: Final = """
    INSERT INTO threshold_history VALUES (%s, %s, %s, 1, %s, .9, .8, 10, 'ema', now())
    ON CONFLICT DO NOTHING
"""
_ADD_PROFILE: Final = """
    INSERT INTO memory_profiles (tenant, user_id, agent_id) VALUES (%s, %s, 'another')
    ON CONFLICT DO NOTHING
"""
_ADD_POLICY: Final = """
    INSERT INTO memory_policies (tenant, version, features, weights, metrics, status)
    VALUES (%s, 1, '{}', '{}', %s, 'refused') ON CONFLICT DO NOTHING
"""
"""Of no known features: it ranks nothing."""


def mark(tenant: str) -> str:
    """Return the text that each row of the tenant has, and no row of the other."""
    return f"mark-of-{tenant}"


def made_runs(count: int) -> list[MadeEpisode]:
    """Return what the runs of both tenants are made of; their tenant does not matter."""
    maker = EpisodeMaker(tenants=1)
    return [maker.of_tenant("") for _ in range(count)]


def events_of(tenant: str, made: MadeEpisode, version: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the events of a run; a higher `version` adds one more."""
    own = mark(tenant)
    draw = random.Random(f"{tenant} {made.workflow_id}")
    steps = [*made.tools, f"tool-{own}", *("again" for _ in range(version))]
    for number, tool in enumerate(steps):
        yield {
            **_head(tenant, made, draw, number, len(steps)),
            "event_type": "task_complete",
            "tool_id": tool,
            "success": True,
            "data": {"arguments": {"order": made.workflow_id, "by": own}},
        }
    yield {
        **_head(tenant, made, random.Random(f"{tenant} {made.workflow_id} end"), 0, 0),
        "event_type": "workflow_complete",
        "confidence": made.confidence,
        "data": {
            "query": made.query, "context": {**made.context, "seen_by": own},
            "response": f"done by {own}", "outcome": made.outcome or "aborted",
            "concepts": [*made.concepts, own], "insights": [f"insight of {own}"],
        },
    }  # fmt: skip


def _head(
    tenant: str, made: MadeEpisode, draw: random.Random, number: int, steps: int
) -> dict[str, Any]:
    return {
        "id": str(UUID(int=draw.getrandbits(128), version=4)),
        "tenant": tenant,
        "workflow_type": made.workflow_type,
        "workflow_id": made.workflow_id,
        "timestamp": made.ended - (steps - number) * 100,
        "user_id": f"user-{mark(tenant)}",
        "agent_id": "support",
    }


async def store_runs(
    sink: EpisodeSink, target: StepTarget, runs: Iterable[tuple[str, MadeEpisode, int]]
) -> None:
    """Store runs as the sink does, and let the memory worker assemble and embed what waits."""
    events = [each for tenant, made, version in runs for each in events_of(tenant, made, version)]
    lines = encode_events([orjson.dumps(each) for each in events])
    await sink.store(lines, {}, topic="bench", epoch=1, on_refused=_refuse)
    while (await assemble_next(target, 500, 0)).rows:
        pass


async def add_thresholds(connection: AsyncConnection[Any]) -> None:
    """Add values of thresholds, and notices, of equal paths of both tenants."""
    for tenant in TENANTS:
        for number in range(PATHS):
            path = f"workflow_type=workflow-1/domain={number}"
            which = [tenant, f"workflow-{mark(tenant)}", path, number]
            await connection.execute(_ADD_HISTORY, which)
            notice = Notice(
                id=f"{tenant}-{number}", kind="drift", tenant=tenant,
                workflow_type="workflow-1", path=path, at=1, evidence={"by": mark(tenant)},
            )  # fmt: skip
            await add_notices(connection, [(0, notice)])


async def add_settings(connection: AsyncConnection[Any]) -> None:
    """Add a profile, for an agent that asks for nothing, and a ranking policy of both tenants."""
    for tenant in TENANTS:
        await connection.execute(_ADD_PROFILE, [tenant, f"user-{mark(tenant)}"])
        await connection.execute(_ADD_POLICY, [tenant, Jsonb({"by": mark(tenant)})])


async def _refuse(refused: Any) -> None:
    raise ValueError(f"refused: {refused}")
