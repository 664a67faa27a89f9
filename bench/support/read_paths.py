"""Every way in which a tenant's data are read, each as a function of random arguments.

`READS` is what `bench purge` and the tests of isolation run; a new read path belongs here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from bench.support.made_episodes import MadeEpisode
from bench.support.marked_tenants import PATHS, mark
from memory.retrieval.client import Memory
from memory.retrieval.concepts import read_concepts
from memory.retrieval.request import MemoryQuery
from memory.retrieval.service import RetrievalService
from memory.store.policies import policy_versions
from memory.store.quarantine import quarantined_batches
from memory.store.reading import all_episodes, find_episodes, memory_stats
from memory.users.export import user_export
from memory.users.memories import list_memories
from sinks.postgres.archive import archived_count, archived_events, span
from sinks.postgres.notices import newest_notices
from sinks.postgres.queries import events_of_workflow, history_of_context

Pool = AsyncConnectionPool[AsyncConnection[Any]]
_STORE_FIGURES: Final = ("models", "bytes", "outbox_rows", "outbox_oldest_s", "vectors")
"""What `memory_stats` says of all tenants, as documented."""


class ReadPaths(NamedTuple):
    """What is read from: a pool for requests, one for commands, and a client with a thread."""

    service: RetrievalService
    memory: Memory
    pool: Pool
    runs: Sequence[MadeEpisode]
    logged: Mapping[str, list[str]]
    """Ids of retrievals that were logged, by tenant."""


Read = Callable[[ReadPaths, str, random.Random], Awaitable[Any]]


def _request(at: ReadPaths, tenant: str, draw: random.Random, mode: Any) -> MemoryQuery:
    made = draw.choice(at.runs)
    fields: dict[str, Any] = {"tenant": tenant, "mode": mode, "k": draw.choice((1, 5, 20))}
    fields |= draw.choice(
        ({}, {}, {"outcome": "success"}, {"tool": made.tools[0]}, {"concepts": made.concepts},
         {"workflow_type": made.workflow_type}, {"event_types": ["workflow_complete"]})
    )  # fmt: skip
    if mode in ("vector", "hybrid"):
        fields |= {"diversity": draw.choice((0.0, 0.0, 0.5))}
    return MemoryQuery(text=made.query, context=made.context if mode == "fuzzy" else None, **fields)


def _search(mode: str) -> Read:
    async def search(at: ReadPaths, tenant: str, draw: random.Random) -> Any:
        found = await at.service.search(_request(at, tenant, draw, mode))
        at.logged[tenant].append(found.id)
        if found.degraded:
            raise ValueError(f"a search was degraded: {found.degraded}")
        return found.episodes

    return search


async def _equal_context(at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    made = draw.choice(at.runs)
    query = MemoryQuery(
        context=made.context, workflow_type=made.workflow_type, tenant=tenant, mode="exact", k=20
    )
    return (await at.service.search(query)).episodes


async def _answer(at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    made = draw.choice(at.runs)
    which: dict[str, Any] = {"tenant": tenant, "workflow_type": made.workflow_type}
    context = {**made.context, "seen_by": mark(tenant)}
    return await asyncio.to_thread(at.memory.answer, made.query, context=context, **which)


async def _context(at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    return await asyncio.to_thread(at.memory.context, draw.choice(at.runs).query, tenant=tenant)


async def _stages(at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    """Ask for the stages of any retrieval, also of the other tenant, of which there are none."""
    owner = draw.choice(list(at.logged))
    if not at.logged[owner]:
        return []
    found = await at.service.stages(tenant, draw.choice(at.logged[owner]))
    return [mark(owner) for _ in found]


def _command(read: Callable[[AsyncConnection[Any], ReadPaths, str, random.Random], Any]) -> Read:
    async def run(at: ReadPaths, tenant: str, draw: random.Random) -> Any:
        async with at.pool.connection() as connection:
            return await read(connection, at, tenant, draw)

    return run


async def _stats(connection: Any, _at: ReadPaths, tenant: str, _draw: random.Random) -> Any:
    found = await memory_stats(connection, tenant, 100)
    if found["tenants"] != 1:
        raise ValueError(f"the statistics of {tenant} are of {found['tenants']} tenants")
    return {name: value for name, value in found.items() if name not in _STORE_FIGURES}


async def _show(connection: Any, at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    return await find_episodes(connection, tenant, draw.choice(at.runs).workflow_id)


async def _graph(connection: Any, _at: ReadPaths, tenant: str, _draw: random.Random) -> Any:
    return await read_concepts(connection, MemoryQuery(text="concepts", tenant=tenant), 500, 100)


async def _export(connection: Any, _at: ReadPaths, tenant: str, _draw: random.Random) -> Any:
    return [each async for each in all_episodes(connection, tenant)]


async def _events(connection: Any, at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    return await events_of_workflow(connection, tenant, draw.choice(at.runs).workflow_id)


async def _archive(connection: Any, at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    wanted = span(None, None, tenant, draw.choice(at.runs).workflow_type)
    await archived_count(connection, wanted)
    return [each async for each in archived_events(connection, wanted)]


async def _history(connection: Any, _at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    path = f"workflow_type=workflow-1/domain={draw.randrange(PATHS)}"
    return await history_of_context(connection, tenant, path)


async def _notices(connection: Any, _at: ReadPaths, tenant: str, _draw: random.Random) -> Any:
    return await newest_notices(connection, 50, tenant=tenant)


async def _quarantined(connection: Any, _at: ReadPaths, tenant: str, _draw: random.Random) -> Any:
    return await quarantined_batches(connection, tenant)


async def _policies(connection: Any, _at: ReadPaths, tenant: str, _draw: random.Random) -> Any:
    return await policy_versions(connection, tenant, 10)


async def _profiles(at: ReadPaths, tenant: str, _draw: random.Random) -> Any:
    return await at.service.profiles(tenant)


def _any_user(at: ReadPaths, draw: random.Random) -> str:
    """Return the user of either tenant: of the other one's there is nothing to be seen."""
    return f"user-{mark(draw.choice(list(at.logged)))}"


async def _memories(connection: Any, at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    return await list_memories(connection, tenant, _any_user(at, draw), limit=20)


async def _of_user(connection: Any, at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    return [each async for each in user_export(connection, tenant, _any_user(at, draw))]


async def _as_user(at: ReadPaths, tenant: str, draw: random.Random) -> Any:
    query = replace(_request(at, tenant, draw, "lexical"), user_id=_any_user(at, draw))
    return (await at.service.search(query)).episodes


READS: Final[dict[str, Read]] = {
    **{f"search {mode}": _search(mode) for mode in ("exact", "lexical", "vector", "hybrid")},
    "search fuzzy": _search("fuzzy"),
    "search equal context": _equal_context,
    "answer": _answer,
    "context": _context,
    "search as a user": _as_user,
    "memories": _command(_memories),
    "everything of a user": _command(_of_user),
    "stages": _stages,
    "stats": _command(_stats),
    "show": _command(_show),
    "graph": _command(_graph),
    "export": _command(_export),
    "events": _command(_events),
    "archive": _command(_archive),
    "history": _command(_history),
    "notices": _command(_notices),
    "quarantined": _command(_quarantined),
    "policies": _command(_policies),
    "profiles": _profiles,
}
"""By name; what is returned has the mark of every tenant whose data are in it."""
WEIGHTS: Final = {
    "stats": 0.07, "graph": 0.15, "export": 0.07, "archive": 0.1, "context": 0.3,
    "everything of a user": 0.2, "quarantined": 0.3, "policies": 0.1, "profiles": 0.2,
}  # fmt: skip
"""How often one is chosen that costs more than the others, or reads little; else 1."""
