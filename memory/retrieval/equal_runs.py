"""Finds the runs whose answers may be given again: of each writer the newest of an equal query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from memory.cases.writers import independent_writer
from memory.episodes.hashes import query_hash
from memory.episodes.record import writer_of
from memory.retrieval.profile_limits import profile_limits
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import FoundEpisode
from memory.retrieval.sealed_episodes import SealedEpisodes
from memory.retrieval.statements import filters_of, statement

WRITERS: Final = 20
"""Writers whose newest run is looked at: the asking one, and those with the newest runs."""


class EqualRuns(NamedTuple):
    """Finished runs, of the asking writer first, then the newest; and what was not read, and why.

    One writer with many runs takes one place, so it cannot displace the runs of others.
    """

    episodes: tuple[FoundEpisode, ...] = ()
    degraded: tuple[str, ...] = ()
    complete: bool = True
    """Whether they could be looked for; else a run that withdraws an answer may be missing."""


async def equal_runs(
    connection: AsyncConnection[Any], query: MemoryQuery, keys: Sequence[str] | None
) -> EqualRuns:
    """Return the newest finished run of each writer with an equal folded query and context.

    `keys`: of the context that must be equal; None: all. Within a transaction of the tenant.
    """
    hashed = query_hash(query.text)
    if hashed is None or query.context is None or query.workflow_type is None:
        return EqualRuns()
    limits = await profile_limits(connection, query)
    if limits.off:
        return EqualRuns(degraded=(limits.off,))
    texts = SealedEpisodes(connection, query.tenant)
    await texts.begin()
    context = query.context
    part = context if keys is None else {key: context[key] for key in keys if key in context}
    which = {
        **filters_of(query), **limits.filters, "tenant": query.tenant, "k": WRITERS,
        "hashes": [hashed, *await texts.hashes(hashed)], "part": Jsonb(part),
        "keys": None if keys is None else list(keys),
        "writer": independent_writer(writer_of(query.user_id, query.agent_id)),
    }  # fmt: skip
    found = await connection.execute(statement("newest_of_writers"), which)
    ids = [row[0] for row in await found.fetchall()]
    if not ids:
        return EqualRuns(degraded=texts.degraded(words=False))
    rows = await connection.execute(statement("episodes"), {**which, "ids": ids})
    opened = await texts.opened(await rows.fetchall())
    return EqualRuns(
        tuple(opened[each] for each in ids if each in opened), texts.degraded(words=False)
    )
