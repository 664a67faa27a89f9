"""Stores packed events as rows again, or reads them where they are: in the caller's transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import AsyncConnection

from sinks.postgres.packing.reading import SQL, PackedRun, TraceReader
from sinks.postgres.packing.trace_format import PackedEvent, TraceDamaged
from sinks.postgres.packing.writing import RunKey, run_key, run_keys

RUNS_READ: Final = 2_000
"""Rows of a cursor that are in memory at once."""
Covers = Callable[[PackedRun, PackedEvent], bool]
"""Whether an event of a run is to be deleted."""


@dataclass(frozen=True)
class ErasedRuns:
    """Packed runs of which nothing stays when the events that `covers` holds for are deleted."""

    covers: Covers
    whole: dict[RunKey, int] = field(default_factory=dict)
    """Those all of whose packed events it holds for, and how many these are; they stay packed."""
    damaged: list[RunKey] = field(default_factory=list)
    """Those whose traces cannot be read; these traces are forgotten."""


@dataclass(frozen=True)
class PackedSelection:
    """Packed runs of a tenant in which the user or session has an event; all runs without both.

    `runs`: workflow ids of further runs, beside those of a user. `types`: only these workflow
    types.
    """

    tenant: str
    user_id: str | None = None
    session_id: str | None = None
    workflow_id: str | None = None
    runs: Sequence[str] = ()
    types: Sequence[str] | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the statement `packed_with`."""
        types = None if self.types is None else list(self.types)
        return {**vars(self), "runs": list(self.runs), "types": types}


async def unpack_runs(
    connection: AsyncConnection[Any], which: PackedSelection, erased: ErasedRuns | None = None
) -> int:
    """Store the packed events of some runs as rows again; return the number of these runs.

    Before events are deleted one by one, as a purge does. In the caller's transaction. `erased`:
    gets the runs that need not be unpacked because no event of them stays; without it,
    `TraceDamaged` is raised for a trace that cannot be read.
    """
    unpacked = list[RunKey]()
    async for run, events in _traces(connection, which, lock=True):
        key = run_key(run)
        if isinstance(events, TraceDamaged):
            if erased is None:
                raise events
            erased.damaged.append(key)
        elif erased is not None and all(erased.covers(run, each) for each in events):
            erased.whole[key] = len(events)
            continue
        else:
            await connection.execute(SQL["insert_rows"], _columns(run, events))
        unpacked.append(key)
    await connection.execute(SQL["forget_traces"], run_keys(unpacked))
    return len(unpacked)


async def packed_with(
    connection: AsyncConnection[Any], which: PackedSelection
) -> AsyncIterator[tuple[PackedRun, list[PackedEvent]]]:
    """Yield the runs that `unpack_runs` would look at, with their events; changes nothing.

    Without those whose traces cannot be read. In the caller's transaction.
    """
    async for run, events in _traces(connection, which, lock=False):
        if not isinstance(events, TraceDamaged):
            yield run, events


async def _traces(
    connection: AsyncConnection[Any], which: PackedSelection, *, lock: bool
) -> AsyncIterator[tuple[PackedRun, list[PackedEvent] | TraceDamaged]]:
    """Yield runs with their events, or with why their trace cannot be read."""
    reader = TraceReader(connection)
    query = SQL["packed_with"] + (b" FOR NO KEY UPDATE" if lock else b"")
    async with connection.cursor("packed_runs") as cursor:  # of the server: a user may have many
        cursor.itersize = RUNS_READ
        await cursor.execute(query, which.parameters())
        async for row in cursor:
            run = PackedRun(*row)
            try:
                found: list[PackedEvent] | TraceDamaged = await reader.of_run(run)
            except TraceDamaged as error:
                found = error
            yield run, found


def _columns(run: PackedRun, events: Sequence[PackedEvent]) -> dict[str, Any]:
    return {
        "tenant": run.tenant, "workflow_id": run.workflow_id, "workflow_type": run.workflow_type,
        "ids": [each.id for each in events], "event_types": [each.event_type for each in events],
        "task_ids": [each.task_id for each in events],
        "user_ids": [each.user_id for each in events],
        "agent_ids": [each.agent_id for each in events],
        "session_ids": [each.session_id for each in events],
        "ats": [each.timestamp for each in events],
        "tool_ids": [each.tool_id for each in events],
        "successes": [each.success for each in events],
        "confidences": [each.confidence for each in events],
        "datas": [each.data for each in events], "extras": [each.extra for each in events],
    }  # fmt: skip
