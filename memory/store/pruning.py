"""Prunes the memory: events beyond an age or a number, and cases beyond the limit of their writer.

Days of events are dropped as partitions; packed events and cases go in bounded batches. An episode
outlives its events; a merged or pruned run, of which nothing else is left, does not.

To find what is beyond a number takes a look at all rows of a tenant, so it is done once for many
batches. A row that changes between is left to a later look: it may rank higher now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import namedtuple_row

from memory.store.limits import RetentionLimits
from memory.store.merging import drop_vectors, next_tenant
from sinks.postgres.statements import load_statements
from sinks.postgres.tenant_locks import lock_tenants

SQL = load_statements("pruning", Path(__file__).parent / "sql")
LEAST_DAYS: Final = 8
"""Younger days are never dropped: runs are packed after seven."""
BATCH: Final = 1_000
MOST_FOUND: Final = 100_000
"""Rows that one look at a tenant finds at most: some 20 MB."""
_ALL: Final = 2**62
_DAY_S: Final = 86_400.0
_EVER: Final = datetime(1, 1, 1, tzinfo=UTC)
AGE, NUMBER, CASES = "too old", "beyond the newest events", "beyond the limit of cases"


class Pruning(NamedTuple):
    """What goes, and why."""

    tenant: str
    """Empty: of all, a whole day of events."""
    of: str
    """The workflow type; for cases the user, and the agent if one is named; or the day.

    Of cases without a user: `no user`, and the workflow type.
    """
    why: str
    episodes: int
    """Runs that lose their packed events, or cases that go."""
    events: int


class _Found(NamedTuple):
    """What one look has found and no step has taken, the last first."""

    rows: list[Any]
    all: bool
    """Whether there was no more to find."""


_Delete = Callable[[AsyncConnection[Any], Mapping[str, Any], list[Any]], Awaitable[None]]


class PruneSweep:
    """Goes through the memory once, of a tenant or of all, a bounded transaction a step."""

    def __init__(
        self,
        limits: RetentionLimits,
        tenant: str | None = None,
        batch: int = BATCH,
        most_found: int = MOST_FOUND,
    ) -> None:
        """`batch`: rows that a step deletes at most; `most_found`: that one look finds."""
        now = datetime.now(UTC)
        self.days = self.events = self.runs = self.cases = 0
        """Dropped partitions; deleted packed events, and of how many runs; deleted cases."""
        self.horizon = now - timedelta(days=max(limits.days, LEAST_DAYS)) if limits.days else None
        """Events of before are deleted."""
        self._limits, self._only = limits, tenant
        self._which = {
            "horizon": self.horizon or _EVER,
            "keep_events": limits.events or _ALL,
            "keep_cases": limits.cases or _ALL,
            "keep_unnamed": limits.unnamed or _ALL,
            "before": now - timedelta(seconds=_DAY_S),
            "limit": most_found,
        }
        self._batch = batch
        self._found: dict[str, _Found] = {}
        """Of the present tenant, by the statement that found them."""
        self._days: list[date] | None = [] if tenant is not None else None
        self._tenant, self._after, self._ended = tenant, "", False

    @property
    def counts(self) -> dict[str, int]:
        """What was deleted so far."""
        return {"days": self.days, "runs": self.runs, "events": self.events, "cases": self.cases}

    async def step(self, connection: AsyncConnection[Any]) -> bool:
        """Delete a batch; return whether there may be more. Raises psycopg's errors.

        `LockNotAvailable`: a long query reads events of a day that is to be dropped.
        """
        if self._ended:
            return False
        if self._days is None:
            self._days = [day for day, _ in await _old_days(connection, self.horizon)]
        if self._days:
            await connection.execute(SQL["drop_partition"], {"day": self._days[0]})
            del self._days[0]
            self.days += 1
            return True
        if self._tenant is None:
            self._tenant = await next_tenant(connection, self._after)
        if self._tenant is None or not await self._of_tenant(connection, self._tenant):
            self._ended = self._tenant is None or self._only is not None
            self._after, self._tenant, self._found = self._tenant or "", None, {}
        return not self._ended

    async def _of_tenant(self, connection: AsyncConnection[Any], tenant: str) -> bool:
        which = {**self._which, "tenant": tenant}
        deletions: dict[str, _Delete] = {
            "beyond_events": self._forget, "beyond_cases": self._prune, "empty": self._drop,
        }  # fmt: skip
        async with connection.transaction():
            await lock_tenants(connection, [tenant])
            for statement, delete in deletions.items():
                rows = await self._next(connection, statement, which)
                if rows:
                    await delete(connection, which, await self._unchanged(connection, which, rows))
                    return True
        return False

    async def _next(
        self, connection: AsyncConnection[Any], statement: str, which: Mapping[str, Any]
    ) -> list[Any]:
        """Take the next rows that a statement has found; look again where it found its most."""
        found = self._found.get(statement)
        if found is None or (not found.rows and not found.all):
            rows = await _rows_of(connection, statement, which)
            found = self._found[statement] = _Found(rows[::-1], len(rows) < which["limit"])
        taken = found.rows[: -self._batch - 1 : -1]
        del found.rows[-self._batch :]
        return taken

    async def _unchanged(
        self, connection: AsyncConnection[Any], which: Mapping[str, Any], rows: list[Any]
    ) -> list[Any]:
        """Return the rows that are as they were found, and keep them so."""
        given = {
            **which, "ids": [row.id for row in rows], "versions": [row.version for row in rows],
        }  # fmt: skip
        found = await (await connection.execute(SQL["unchanged"], given)).fetchall()
        ids = {id for (id,) in found}
        return [row for row in rows if row.id in ids]

    async def _forget(
        self, connection: AsyncConnection[Any], which: Mapping[str, Any], rows: list[Any]
    ) -> None:
        ids = [row.id for row in rows]
        await connection.execute(SQL["forget_traces"], {**which, "ids": ids})
        self.runs += len(rows)
        self.events += sum(row.packed for row in rows)

    async def _prune(
        self, connection: AsyncConnection[Any], which: Mapping[str, Any], rows: list[Any]
    ) -> None:
        ids = [row.id for row in rows]
        for name in ("prune_members", "prune_packed", "delete_unpacked"):
            await connection.execute(SQL[name], {**which, "ids": ids})
        await drop_vectors(connection, which["tenant"], ids)
        self.cases += len(ids)

    async def _drop(
        self, connection: AsyncConnection[Any], which: Mapping[str, Any], rows: list[Any]
    ) -> None:
        await connection.execute(SQL["delete_empty"], {**which, "ids": [row.id for row in rows]})

    async def outlook(self, connection: AsyncConnection[Any]) -> list[Pruning]:
        """Return what the sweep would delete now, changing nothing."""
        found = []
        if self._only is None:
            for day, events in await _old_days(connection, self.horizon):
                found.append(Pruning("", day.isoformat(), AGE, 0, events))
        tenant = self._only or await next_tenant(connection, "")
        while tenant is not None:
            which = {**self._which, "tenant": tenant, "limit": _ALL}
            found += _of_events(tenant, await _rows_of(connection, "beyond_events", which))
            found += _of_cases(tenant, await _rows_of(connection, "beyond_cases", which))
            tenant = None if self._only else await next_tenant(connection, tenant)
        return found


async def _rows_of(
    connection: AsyncConnection[Any], statement: str, which: Mapping[str, Any]
) -> list[Any]:
    """Return what a statement finds, as named tuples."""
    async with connection.cursor(row_factory=namedtuple_row) as cursor:
        return await (await cursor.execute(SQL[statement], which)).fetchall()


async def _old_days(
    connection: AsyncConnection[Any], horizon: datetime | None
) -> list[tuple[date, int]]:
    if horizon is None:
        return []
    rows = await (
        await connection.execute(SQL["old_partitions"], {"day": horizon.date()})
    ).fetchall()
    return [(day, events) for day, events in rows]


def _of_events(tenant: str, rows: Iterable[Any]) -> list[Pruning]:
    runs, events = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in rows:
        why = row.workflow_type, AGE if row.age else NUMBER
        runs[why] += 1
        events[why] += row.packed
    return [Pruning(tenant, *why, runs[why], events[why]) for why in sorted(runs)]


def _of_cases(tenant: str, rows: Iterable[tuple[Any, ...]]) -> list[Pruning]:
    cases = Counter("/".join(filter(None, row[:2])) for row in rows)
    return [Pruning(tenant, of, CASES, count, 0) for of, count in sorted(cases.items())]
