"""One step of the memory worker: from rows of the outbox to episodes, in one transaction.

The rows of the outbox are deleted in it. A worker that is killed at any line has done nothing, and
its rows are there for the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import psycopg
import structlog
from psycopg import AsyncConnection, errors

from agents.memory.embedding import GuardedEmbedder
from agents.memory.large_runs import LargeRuns
from memory.episodes.assembly import assemble
from memory.episodes.record import Episode
from memory.store.conflicts import repeated
from memory.store.episodes import Key, known_times, store_episodes
from memory.store.limits import UNLIMITED_WRITES, WriteLimits
from memory.store.outbox import SQL, TouchedRun, run_events, take_runs, widen
from memory.store.purges import lock_and_read, not_purged
from memory.store.quarantine import QuarantineChange, judge_written, quarantined_ids
from memory.store.vectors import keep_current, put_vectors, texts_of, without_vector
from sinks.postgres.packing.trace_format import TraceDamaged

log = structlog.get_logger()


UNUSABLE: Final = (
    psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded, TraceDamaged
)  # fmt: skip
"""Stored data that Postgres refuses in another form, or packed events that cannot be read."""


class RunsRefused(Exception):
    """No episode can be made of one of these runs, because of the error that is the cause."""

    def __init__(self, runs: list[TouchedRun]) -> None:
        super().__init__(f"{len(runs)} runs")
        self.runs = runs


class StepResult(NamedTuple):
    """What a step has done: rows taken out of the outbox, and episodes written."""

    rows: int = 0
    episodes: int = 0
    without_vector: int = 0
    """Episodes with a text that could not be embedded."""


class StepTarget(NamedTuple):
    """Where a step stores, and with what it embeds; `model` None: vectors cannot be stored.

    `writes`: how many episodes of a writer count for others. `part_done`: called after each part
    of a step, such as a run that was read: a long step is not a stuck worker.
    """

    connection: AsyncConnection[Any]
    embedder: GuardedEmbedder
    model: int | None
    writes: WriteLimits = UNLIMITED_WRITES
    part_done: Callable[[], None] = lambda: None


async def assemble_next(
    target: StepTarget, limit: int, debounce_s: float, large: LargeRuns | None = None
) -> StepResult:
    """Take up to `limit` rows and store their episodes; nothing is lost if that fails.

    Those beyond the limits of their writers are quarantined. The embedder's failure leaves episodes
    without vectors. Runs that `large` postpones are not taken; those assembled are noted in it.
    Raises `RunsRefused`, and psycopg's errors.
    """
    large = large or LargeRuns()

    async def step() -> tuple[StepResult, list[Episode]]:
        async with target.connection.transaction():
            runs, rows = await take_runs(target.connection, limit, debounce_s, large.postponed())
            try:
                return await _assemble(target, runs, rows)
            except UNUSABLE as error:
                raise RunsRefused(runs) from error

    done, episodes = await repeated(step)
    large.note(episodes)
    return done


async def _assemble(
    target: StepTarget, runs: list[TouchedRun], rows: int
) -> tuple[StepResult, list[Episode]]:
    connection = target.connection
    if not runs:
        return StepResult(), []
    await connection.execute(SQL["plan_by_index"])
    purges = await lock_and_read(connection, [run.tenant for run in runs])
    known = await known_times(connection, runs)
    episodes = []
    async for run, workflow_type, found in run_events(connection, _cover(runs, known)):
        target.part_done()
        if events := not_purged(run.tenant, run.workflow_id, found, purges):
            episodes.append(assemble(run.tenant, workflow_type, run.workflow_id, events))
    stored = await store_episodes(connection, episodes, known)
    target.part_done()
    changes = await judge_written(connection, stored.written, target.writes, known)
    target.part_done()
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
    target.part_done()
    if vectors is None:
        return len(texts)
    await put_vectors(target.connection, texts, vectors, target.model)
    return 0
