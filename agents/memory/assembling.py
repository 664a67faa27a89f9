"""One step of the memory worker: from rows of the outbox to episodes, in one transaction.

The rows of the outbox are deleted in it. A worker that is killed at any line has done nothing, and
its rows are there for the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import structlog
from psycopg import AsyncConnection

from agents.memory.embedding import GuardedEmbedder
from agents.memory.large_runs import LargeRuns
from memory.episodes.assembly import assemble
from memory.episodes.record import Episode
from memory.store.conflicts import repeated
from memory.store.episodes import Key, known_times, store_episodes
from memory.store.limits import UNLIMITED_WRITES, WriteLimits
from memory.store.outbox import SQL, RunKey, TouchedRun, run_events, take_runs, widen
from memory.store.purges import lock_and_read, not_purged
from memory.store.quarantine import QuarantineChange, judge_written, quarantined_ids
from memory.store.vectors import keep_current, put_vectors, texts_of, without_vector

log = structlog.get_logger()


class StepResult(NamedTuple):
    """What a step has done: rows taken out of the outbox, and episodes written."""

    rows: int = 0
    episodes: int = 0
    without_vector: int = 0
    """Episodes with a text that could not be embedded."""


class StepTarget(NamedTuple):
    """Where a step stores, and with what it embeds; `model` None: vectors cannot be stored.

    `writes`: how many episodes of a writer count for others.
    """

    connection: AsyncConnection[Any]
    embedder: GuardedEmbedder
    model: int | None
    writes: WriteLimits = UNLIMITED_WRITES


async def assemble_next(
    target: StepTarget, limit: int, debounce_s: float, large: LargeRuns | None = None
) -> StepResult:
    """Take up to `limit` rows and store their episodes. Raises psycopg's errors; nothing is lost.

    Those beyond the limits of their writers are quarantined. The embedder's failure leaves episodes
    without vectors. The runs that `large` postpones are not taken; it is told of those assembled.
    """
    large = large or LargeRuns()

    async def step() -> tuple[StepResult, list[Episode]]:
        async with target.connection.transaction():
            return await _assemble(target, limit, debounce_s, large.postponed())

    done, episodes = await repeated(step)
    large.note(episodes)
    return done


async def drop_next(
    connection: AsyncConnection[Any], debounce_s: float, large: LargeRuns
) -> list[TouchedRun]:
    """Take the row out of the outbox that comes next, and do nothing else; return its run."""
    async with connection.transaction():
        runs, _rows = await take_runs(connection, 1, debounce_s, large.postponed())
    return runs


async def _assemble(
    target: StepTarget, limit: int, debounce_s: float, postponed: Collection[RunKey]
) -> tuple[StepResult, list[Episode]]:
    connection = target.connection
    runs, rows = await take_runs(connection, limit, debounce_s, postponed)
    if not runs:
        return StepResult(), []
    await connection.execute(SQL["plan_by_index"])
    purges = await lock_and_read(connection, [run.tenant for run in runs])
    known = await known_times(connection, runs)
    episodes = []
    async for run, workflow_type, found in run_events(connection, _cover(runs, known)):
        if events := not_purged(run.tenant, run.workflow_id, found, purges):
            episodes.append(assemble(run.tenant, workflow_type, run.workflow_id, events))
    stored = await store_episodes(connection, episodes, known)
    changes = await judge_written(connection, stored.written, target.writes, known)
    left_out = await quarantined_ids(connection, stored.written)
    counting = [each for each in stored.written if (each.tenant, each.id) not in left_out]
    missing = await _embed(target, counting, known)
    missing += sum(each.reason is None for each in changes)
    _say(changes)
    return StepResult(rows, len(stored.written), missing), episodes


def _say(changes: Sequence[QuarantineChange]) -> None:
    """Log what was quarantined, by tenant and reason."""
    for (tenant, reason), count in Counter((c.tenant, c.reason) for c in changes).items():
        if reason is not None:
            log.warning("memory.quarantined", tenant=tenant, reason=reason, episodes=count)


def _cover(runs: list[TouchedRun], known: dict[Key, tuple[int, int]]) -> list[TouchedRun]:
    """Return the runs with the times of their known episodes in theirs."""
    times = {run[:2]: run for run in runs}
    for (tenant, workflow_id, _kind), (started, ended) in known.items():
        run = times[tenant, workflow_id]
        times[tenant, workflow_id] = widen(run, started, ended)
    return list(times.values())


async def _embed(
    target: StepTarget, written: list[Episode], known: dict[Key, tuple[int, int]]
) -> int:
    """Store the vectors of what was written; return how many are missing."""
    if target.model is None:
        return 0
    changed = [each for each in written if each.key in known]
    await keep_current(target.connection, changed)
    there = {each.id for each in changed}
    texts = texts_of([each for each in written if each.id not in there])
    texts += await without_vector(target.connection, texts_of(changed), target.model)
    if not texts:
        return 0
    vectors = await target.embedder.embed([each.text for each in texts])
    if vectors is None:
        return len(texts)
    await put_vectors(target.connection, texts, vectors, target.model)
    return 0
