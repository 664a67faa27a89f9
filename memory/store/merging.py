"""Consolidates the memory: repeated routine runs of one writer become one episode with a count.

A merged run keeps its row, without content or vector, and its packed events, from which it can be
assembled again at any time. The newest of equal runs stands for all of them; its `support` is their
number. Failures, surprises and runs that were judged by their use stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from memory.episodes.record import Episode
from sinks.postgres.statements import load_statements
from sinks.postgres.tenant_locks import lock_tenants

SQL = load_statements("merging", Path(__file__).parent / "sql")
SURPRISE: Final = 0.5
"""The most by which a success may differ from its confidence and still count as routine."""
LEAST_AGE_S: Final = 86_400.0
"""Runs of the last day are never merged: most of their late events have come by then."""
_QUERIES: Final = 200
_RUNS: Final = 4_000
"""Rows that one transaction locks."""
_BEGIN: Final = -(2**63)


class RoutineRun(NamedTuple):
    """A run that may be merged. `support`: the runs that it stands for already."""

    id: int
    query: int
    support: int
    kind: tuple[Any, ...]
    """Equal of runs that are merged."""


class Merge(NamedTuple):
    """Runs that become one: the first, which stands for `support` runs, and the others' ids."""

    kept: int
    support: int
    merged: tuple[int, ...]


class MergeOutlook(NamedTuple):
    """How many runs of a tenant and workflow type a consolidation treats in one way."""

    tenant: str
    workflow_type: str
    what: str
    """`to merge`, or why the runs stay."""
    runs: int


def merges_of(runs: Iterable[RoutineRun]) -> list[Merge]:
    """Return the merges of routine runs, given newest first: of each kind the first stays. Pure."""
    kinds: dict[tuple[Any, ...], list[RoutineRun]] = {}
    for run in runs:
        kinds.setdefault((run.query, *run.kind), []).append(run)
    return [
        Merge(first.id, sum(run.support for run in (first, *others)), tuple(r.id for r in others))
        for first, *others in kinds.values()
        if others
    ]


class ConsolidationSweep:
    """Goes through the memory once, of a tenant or of all, a bounded transaction a step.

    Killed at any line it has merged whole groups or none: the run that stands for the others is
    found at every moment.
    """

    def __init__(
        self,
        tenant: str | None = None,
        least_age_s: float = LEAST_AGE_S,
        most_runs: int = _RUNS,
    ) -> None:
        """`least_age_s`: seconds since the last event of a run. `most_runs`: that a step locks, at
        first."""
        self.merged = self.groups = 0
        """Runs that were merged, and into how many."""
        self._before = _before(least_age_s)
        self._most = self._limit = most_runs
        self._only = tenant
        self._tenant: str | None = tenant
        self._after_tenant, self._after = "", _BEGIN
        self._ended = False

    @property
    def counts(self) -> dict[str, int]:
        """What was merged so far."""
        return {"merged": self.merged, "groups": self.groups}

    async def step(self, connection: AsyncConnection[Any]) -> bool:
        """Merge some runs; return whether there may be more. Raises psycopg's errors."""
        if self._ended:
            return False
        if self._tenant is None:
            self._tenant = await next_tenant(connection, self._after_tenant)
            self._after = _BEGIN
        if self._tenant is None:
            self._ended = True
            return False
        if await self._merge_some(connection, self._tenant):
            return True
        self._after_tenant, self._tenant = self._tenant, None
        self._ended = self._only is not None
        return not self._ended

    async def _merge_some(self, connection: AsyncConnection[Any], tenant: str) -> bool:
        which = {"tenant": tenant, "before": self._before, "surprise": SURPRISE}
        async with connection.transaction():
            await lock_tenants(connection, [tenant])
            wanted = {**which, "after": self._after, "limit": _QUERIES}
            rows = await (await connection.execute(SQL["queries"], wanted)).fetchall()
            if not rows:
                return False
            queries = [row[0] for row in rows]
            runs = await self._lock(connection, {**which, "queries": queries})
            merges = merges_of(runs)
            await _merge(connection, tenant, merges)
        self.groups += len(merges)
        self.merged += sum(len(each.merged) for each in merges)
        if len(runs) < self._limit:
            self._after, self._limit = queries[-1], self._most
        elif not merges:  # so many different runs of one query: further ones may be equal to them
            self._limit *= 2
        return True

    async def _lock(
        self, connection: AsyncConnection[Any], which: dict[str, Any]
    ) -> list[RoutineRun]:
        wanted = {**which, "limit": self._limit}
        rows = await (await connection.execute(SQL["lock_routine"], wanted)).fetchall()
        return [RoutineRun(id, query, support, tuple(kind)) for id, query, support, *kind in rows]


async def _merge(connection: AsyncConnection[Any], tenant: str, merges: Sequence[Merge]) -> None:
    if not merges:
        return
    ids = [id for each in merges for id in each.merged]
    given = {
        "tenant": tenant,
        "ids": ids,
        "intos": [each.kept for each in merges for _ in each.merged],
        "reps": [each.kept for each in merges],
        "supports": [each.support for each in merges],
    }
    for name in ("move_merged", "merge", "set_support"):
        await connection.execute(SQL[name], given)
    await drop_vectors(connection, tenant, ids)


async def drop_vectors(connection: AsyncConnection[Any], tenant: str, ids: Sequence[int]) -> None:
    """Delete the vectors of episodes, if the database has a table of them."""
    row = await (await connection.execute("SELECT to_regclass('episode_vectors')")).fetchone()
    if row and row[0]:
        await connection.execute(SQL["drop_vectors"], {"tenant": tenant, "ids": list(ids)})


async def release_merged(connection: AsyncConnection[Any], written: Sequence[Episode]) -> None:
    """Undo merges that written episodes were a part of, in the transaction that wrote them."""
    if written:
        which = {"tenants": [e.tenant for e in written], "ids": [e.id for e in written]}
        await connection.execute(SQL["release"], which)


async def next_tenant(connection: AsyncConnection[Any], after: str) -> str | None:
    """Return the first tenant with episodes after a name; None: there is none."""
    row = await (await connection.execute(SQL["next_tenant"], {"after": after})).fetchone()
    return row[0] if row else None


async def consolidation_outlook(
    connection: AsyncConnection[Any], tenant: str | None = None, least_age_s: float = LEAST_AGE_S
) -> list[MergeOutlook]:
    """Return what a sweep would do, and why the other runs stay."""
    which = {"tenant": tenant, "before": _before(least_age_s), "surprise": SURPRISE}
    rows = await (await connection.execute(SQL["outlook"], which)).fetchall()
    return [MergeOutlook(*row) for row in rows]


def _before(least_age_s: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=max(least_age_s, LEAST_AGE_S))
