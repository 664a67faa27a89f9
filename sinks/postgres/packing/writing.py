"""Packs cold runs: each call is one transaction.

The trace is stored and exactly the rows in it are deleted together, so an event is in one place at
every moment. Rows that are stored meanwhile stay, and join the trace at the next pack.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from sinks.postgres.packing.reading import SQL, PackedRun, TraceReader
from sinks.postgres.packing.trace_format import (
    PackedEvent,
    RunTrace,
    TraceCodec,
    TraceDamaged,
    TraceDictionary,
)
from sinks.postgres.packing.training import (
    MIN_RUNS,
    WANTED_RUNS,
    SampledRun,
    train_dictionary,
)
from sinks.postgres.tenant_locks import lock_tenants

RunKey = tuple[str, str, str]
"""Tenant, workflow id and workflow type."""
START: Final[RunKey] = ("", "", "")
LEAST_COLD_S: Final = 86_400.0
"""Nothing younger is packed: the sink looks for repeated events only among older ones."""
MOST_EVENTS: Final = 10_000
"""Runs of more events stay as they are."""
MOST_BYTES: Final = 32_000_000
"""The same of the bytes of their content; and what a batch may read."""
RUNS_AT_ONCE: Final = 250
EVENTS_AT_ONCE: Final = 5_000


class RowsChanged(RuntimeError):
    """Rows of a run went while it was packed; nothing was changed."""


class PackedBatch(NamedTuple):
    """What one batch has done. `after`: where to go on; None: there are no more cold runs."""

    after: RunKey | None
    runs: int = 0
    events: int = 0
    bytes_before: int = 0
    """Of the events' content as JSON."""
    bytes_after: int = 0
    damaged: tuple[str, ...] = ()
    """Why earlier traces cannot be read; their runs stay as they are."""


class _Opened(NamedTuple):
    run: PackedRun
    rows: list[PackedEvent]


class _Made(NamedTuple):
    run: PackedRun
    rows: list[PackedEvent]
    trace: RunTrace
    others: list[str]


async def pack_next(
    connection: AsyncConnection[Any], after: RunKey, cold_s: float, tenant: str | None = None
) -> PackedBatch:
    """Pack some cold runs that follow a key, in one transaction. Raises psycopg's errors.

    `cold_s`: seconds since the last event of a run, at least `LEAST_COLD_S`. Raises `RowsChanged`.
    """
    cold_s = max(cold_s, LEAST_COLD_S)
    async with connection.transaction():
        found = await _candidates(connection, after, cold_s, tenant)
        if not found:
            return PackedBatch(None)
        await lock_tenants(connection, [found[0][0]])
        opened, last = await _open(connection, found, cold_s)
        done = await _store(connection, opened)
    return done._replace(after=last)


async def next_tenant(
    connection: AsyncConnection[Any], after: RunKey, cold_s: float, tenant: str | None = None
) -> str | None:
    """Return the tenant of the next cold run; None: there is none."""
    found = await _candidates(connection, after, cold_s, tenant, 1)
    return found[0][0] if found else None


async def train_for(
    connection: AsyncConnection[Any], tenant: str, cold_s: float
) -> TraceDictionary | None:
    """Return the dictionary of a tenant; train the first, or a better one, if there is enough.

    In one transaction.
    """
    async with connection.transaction():
        await connection.execute(SQL["lock_training"], {"tenant": tenant})
        await lock_tenants(connection, [tenant])
        newest = await _newest(connection, tenant)
        if newest is not None and newest.runs >= WANTED_RUNS:
            return newest
        found = await _candidates(connection, START, cold_s, tenant, WANTED_RUNS)
        if len(found) < (MIN_RUNS if newest is None else WANTED_RUNS):
            return newest
        runs = [run async for run in _samples(connection, found)]
        row = await (await connection.execute(SQL["next_dictionary"])).fetchone()
        assert row is not None
        content = train_dictionary(runs, row[0])
        if content is None:
            return newest
        made = TraceDictionary(row[0], len(runs), content)
        await connection.execute(SQL["add_dictionary"], made._asdict() | {"tenant": tenant})
    return made


async def _candidates(
    connection: AsyncConnection[Any],
    after: RunKey,
    cold_s: float,
    tenant: str | None,
    limit: int = RUNS_AT_ONCE,
) -> list[RunKey]:
    """Return the next cold runs, all of one tenant, of bounded events together."""
    which = {
        "after_tenant": after[0], "after_id": after[1], "after_type": after[2], "tenant": tenant,
        "cold_s": cold_s, "most_events": MOST_EVENTS, "limit": limit,
    }  # fmt: skip
    rows = await (await connection.execute(SQL["candidates"], which)).fetchall()
    found: list[RunKey] = []
    events = 0
    for own, workflow_id, workflow_type, count in rows:
        events += count
        if found and (own != found[0][0] or events > EVENTS_AT_ONCE * limit // RUNS_AT_ONCE):
            break
        found.append((own, workflow_id, workflow_type))
    return found


async def _open(
    connection: AsyncConnection[Any], found: Sequence[RunKey], cold_s: float
) -> tuple[list[_Opened], RunKey]:
    """Lock runs and read their rows; return them, and the last one that was looked at."""
    rows = await (
        await connection.execute(SQL["lock_runs"], run_keys(found) | {"cold_s": cold_s})
    ).fetchall()
    runs = [PackedRun(*row) for row in rows]
    opened, last, size = list[_Opened](), found[-1], 0
    if not runs:
        return opened, last
    async for number, events, exact in _rows(connection, [run_key(run) for run in runs]):
        own = _size(events)
        size += own
        if size > MOST_BYTES and opened:
            return opened, run_key(opened[-1].run)
        if exact and own <= MOST_BYTES:
            opened.append(_Opened(runs[number], events))
    return opened, last


async def _rows(
    connection: AsyncConnection[Any], keys: Sequence[RunKey]
) -> AsyncIterator[tuple[int, list[PackedEvent], bool]]:
    """Yield (place of the run, its rows, whether their times are whole ms), in order."""
    await connection.execute(SQL["plan_by_index"])
    place: int | None = None
    events: list[PackedEvent] = []
    whole = True
    wanted = run_keys(keys) | {"numbers": list(range(len(keys)))}
    async with connection.cursor() as cursor:
        async for number, exact, *columns in cursor.stream(SQL["rows_of_runs"], wanted, size=500):
            if number != place:
                if place is not None:
                    yield place, events, whole
                place, events, whole = number, [], True
            whole = whole and exact
            events.append(PackedEvent(*columns))
    if place is not None:
        yield place, events, whole


async def _samples(
    connection: AsyncConnection[Any], keys: Sequence[RunKey]
) -> AsyncIterator[SampledRun]:
    size = 0
    async for place, events, _exact in _rows(connection, keys):
        size += _size(events)
        if size > MOST_BYTES:
            return
        yield SampledRun(keys[place][1], events)


async def _store(connection: AsyncConnection[Any], opened: Sequence[_Opened]) -> PackedBatch:
    """Store traces and delete the rows that are in them."""
    if not opened:
        return PackedBatch(None)
    reader = TraceReader(connection)
    codec = TraceCodec(await _newest(connection, opened[0].run.tenant))
    made, damaged = list[_Made](), list[str]()
    for run, rows in opened:
        try:
            events = [*await reader.of_run(run), *rows]
        except TraceDamaged as error:
            damaged.append(str(error))
            continue
        made.append(_Made(run, rows, codec.pack(events), _others(run, events)))
    await _replace(connection, made)
    return PackedBatch(
        None, len(made), sum(len(each.rows) for each in made),
        sum(_size(each.rows) for each in made), sum(len(each.trace.frame) for each in made),
        tuple(damaged),
    )  # fmt: skip


def _others(run: PackedRun, events: Iterable[PackedEvent]) -> list[str]:
    """Return the users and sessions of events that are not those of the episode."""
    named = {name for event in events for name in (event.user_id, event.session_id) if name}
    return sorted(named - {run.user_id, run.session_id})


async def _replace(connection: AsyncConnection[Any], made: Sequence[_Made]) -> None:
    given = run_keys([run_key(each.run) for each in made]) | {
        "traces": [each.trace.frame for each in made],
        "ids": [_array(each.trace.ids) for each in made],
        "types": [_array(each.trace.types) for each in made],
        "others": [_array(each.others) if each.others else None for each in made],
    }
    await connection.execute(SQL["store_traces"], given)
    rows = [(each.run.tenant, event) for each in made for event in each.rows]
    gone = {
        "tenants": [tenant for tenant, _ in rows],
        "ids": [event.id for _, event in rows],
        "ats": [event.timestamp for _, event in rows],
    }
    cursor = await connection.execute(SQL["delete_rows"], gone)
    if cursor.rowcount != len(rows):
        raise RowsChanged(f"{cursor.rowcount} of {len(rows)} rows were there to be deleted")


async def _newest(connection: AsyncConnection[Any], tenant: str) -> TraceDictionary | None:
    row = await (await connection.execute(SQL["newest_dictionary"], {"tenant": tenant})).fetchone()
    return TraceDictionary(*row) if row else None


def _size(events: Sequence[PackedEvent]) -> int:
    return sum(len(event.data) + len(event.extra or "") for event in events)


def run_key(run: PackedRun) -> RunKey:
    """Return the key of a run."""
    return run.tenant, run.workflow_id, run.workflow_type


def run_keys(keys: Sequence[RunKey]) -> dict[str, Any]:
    """Return keys of runs as parameters of a statement: three lists of one length."""
    return {
        "tenants": [key[0] for key in keys],
        "workflow_ids": [key[1] for key in keys],
        "workflow_types": [key[2] for key in keys],
    }


def _array(values: Sequence[str]) -> str:
    """Return a text array as Postgres reads it."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"
