"""Logs the four stages of a retrieval under its id: retrieve, reuse, evaluate, retain.

After source 004 and Memento: what was found, what of it was used, how that was judged, and which
episode came of it. Rows are added and never changed. They hold ids and hashes, no text of a user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from memory.episodes.hashes import query_hash
from memory.episodes.record import writer_of
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.statements import statement
from sinks.postgres.asking_writers import writer_hash

Stage = Literal["retrieve", "reuse", "evaluate", "retain"]


class LoggedStage(NamedTuple):
    """One stage of a retrieval."""

    stage: Stage
    at: int
    """Unix ms."""
    data: Mapping[str, Any]
    """`episodes`: ids of the reference cases, as strings; and what belongs to the stage."""


def asking_writer(tenant: str, user_id: str | None, agent_id: str | None = None) -> str:
    """Return the hash of the writer of a run that asks; "" if it names neither user nor agent."""
    return writer_hash(tenant, writer_of(user_id, agent_id)) if user_id or agent_id else ""


def retrieve_data(
    query: MemoryQuery, found: Retrieval, took_ms: float, policy: int | None = None
) -> dict[str, Any]:
    """Return what the first stage says. `policy`: the version that ranked; None: similarity."""
    return {
        "episodes": [str(each.id) for each in found.episodes],
        "scores": [round(each.score, 6) for each in found.episodes],
        "mode": query.mode,
        "k": query.k,
        "workflow_type": query.workflow_type,
        "query_hash": str(query_hash(query.text)),
        "writer": found.writer,
        "policy": policy,
        "took_ms": round(took_ms, 1),
        "degraded": list(found.degraded),
    }


def reference_data(episodes: Sequence[int], **more: Any) -> dict[str, Any]:
    """Return what a later stage says; `more` without what is None."""
    given = {name: value for name, value in more.items() if value is not None}
    return {"episodes": [str(each) for each in episodes], **given}


def check_judgement(reward: object, accepted: object) -> None:
    """Raise `ValueError` unless there is a reward from 0 to 1, or a bool in `accepted`."""
    if reward is None and accepted is None:
        raise ValueError("give a reward, accepted, or both")
    if accepted is not None and not isinstance(accepted, bool):
        raise ValueError(f"accepted must be True or False, not {accepted!r:.100}")
    is_number = isinstance(reward, int | float) and not isinstance(reward, bool)
    if reward is not None and not (is_number and 0 <= reward <= 1):  # type: ignore[operator]
        raise ValueError(f"reward must be a number from 0 to 1, not {reward!r:.100}")


def check_ids(episodes: Sequence[object]) -> None:
    """Raise `ValueError` unless all are ids of episodes: whole numbers of 64 bits."""
    for each in episodes:
        if isinstance(each, bool) or not isinstance(each, int) or not -(2**63) <= each < 2**63:
            raise ValueError(f"episodes must be ids of episodes, not {each!r:.100}")


async def add_stage(
    connection: AsyncConnection[Any], tenant: str, id: str, stage: Stage, data: Mapping[str, Any]
) -> None:
    """Add a stage, within a transaction of the tenant."""
    which = {"id": id, "tenant": tenant, "stage": stage, "data": Jsonb(dict(data))}
    await connection.execute(statement("add_stage"), which)


async def log_search(
    connection: AsyncConnection[Any],
    query: MemoryQuery,
    found: Retrieval,
    took_ms: float,
    policy: int | None = None,
) -> Retrieval:
    """Log the first stage; return what was found, with its writer.

    If the row is refused, as by a standby, `degraded` says so. Raises `psycopg.Error` if the
    connection fails.
    """
    found = found._replace(writer=asking_writer(query.tenant, query.user_id, query.agent_id))
    data = retrieve_data(query, found, took_ms, policy)
    try:
        async with connection.transaction():
            await add_stage(connection, query.tenant, found.id, "retrieve", data)
    except psycopg.Error as error:
        if error.sqlstate is None:
            raise
        why = f"the search was not logged: {' '.join(str(error).split())}"
        return found._replace(degraded=(*found.degraded, why))
    return found


async def read_stages(connection: AsyncConnection[Any], tenant: str, id: str) -> list[LoggedStage]:
    """Return the stages of a retrieval, in order, within a transaction of the tenant."""
    found = await connection.execute(statement("stages"), {"id": id, "tenant": tenant})
    return [LoggedStage(*row) for row in await found.fetchall()]


async def apply_judgements(connection: AsyncConnection[Any], tenant: str) -> int:
    """Set the usefulness of a tenant's episodes from how their uses were judged.

    -1: always rejected, 1: always accepted, as `memory.retrieval.answers.usefulness`; where a use
    was not accepted or rejected its reward counts. Each writer (`asking_writer`) has one vote: the
    mean of its retrievals. Needs the role of the worker. Returns how many have changed.
    """
    changed = await connection.execute(statement("apply_judgements"), {"tenant": tenant})
    return changed.rowcount
