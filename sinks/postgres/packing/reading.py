"""Reads packed runs back as events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from sinks.postgres.packing.trace_format import (
    PackedEvent,
    TraceCodec,
    TraceDamaged,
    TraceDictionary,
    dictionary_of,
)
from sinks.postgres.statements import load_statements

SQL = load_statements("packing", Path(__file__).parent / "sql")


class PackedRun(NamedTuple):
    """The trace of one run as it is stored, with the user and session of its episode."""

    tenant: str
    workflow_id: str
    workflow_type: str
    user_id: str | None
    session_id: str | None
    trace: bytes | None
    ids: list[str] | None


class TraceReader:
    """Unpacks runs; keeps the dictionaries that it has loaded. Use one for a transaction."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._codecs: dict[tuple[str, int], TraceCodec] = {("", 0): TraceCodec()}

    async def events(
        self, tenant: str, workflow_id: str, trace: bytes | None, ids: Sequence[str] | None
    ) -> list[PackedEvent]:
        """Return the events of a trace; none without one. Raises `TraceDamaged`."""
        if not trace:
            return []
        try:
            number = dictionary_of(trace)
            codec = await self._codec(tenant if number else "", number)
            return codec.unpack(trace, ids or ())
        except TraceDamaged as error:
            raise TraceDamaged(
                f"the packed events of workflow {workflow_id!r} of {tenant!r} are damaged: "
                f"{error}; restore the row of table episodes from a backup"
            ) from error

    async def load(self, runs: Iterable[PackedRun]) -> None:
        """Load the dictionaries that these runs need: later reads ask Postgres for nothing.

        A connection whose rows are being streamed cannot be asked, it would wait for itself.
        """
        for run in runs:
            with suppress(TraceDamaged):  # raised when the run is read
                if run.trace and (number := dictionary_of(run.trace)):
                    await self._codec(run.tenant, number)

    async def of_run(self, run: PackedRun) -> list[PackedEvent]:
        """Return the events of a run. Raises `TraceDamaged`."""
        return await self.events(run.tenant, run.workflow_id, run.trace, run.ids)

    async def rows(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a row with the columns `trace` and `trace_ids` as rows of events without them.

        That is itself, or the events of its trace. Raises `TraceDamaged`.
        """
        trace, ids = row.pop("trace"), row.pop("trace_ids")
        if trace is None:
            return [row]
        run = row["tenant"], row["workflow_type"], row["workflow_id"]
        return [row_of(event, *run) for event in await self.events(run[0], run[2], trace, ids)]

    async def _codec(self, tenant: str, number: int) -> TraceCodec:
        codec = self._codecs.get((tenant, number))
        if codec is None:
            which = {"tenant": tenant, "ids": [number]}
            row = await (await self._connection.execute(SQL["dictionaries"], which)).fetchone()
            if row is None:
                raise TraceDamaged(f"its dictionary {number} is missing")
            codec = self._codecs[tenant, number] = TraceCodec(TraceDictionary(*row))
        return codec


async def traces_of_runs(
    connection: AsyncConnection[Any], tenants: Sequence[str], workflow_ids: Sequence[str]
) -> list[PackedRun]:
    """Return the packed ones of these runs, given as two lists of equal length."""
    wanted = {"tenants": list(tenants), "workflow_ids": list(workflow_ids)}
    rows = await (await connection.execute(SQL["traces_of_runs"], wanted)).fetchall()
    return [PackedRun(*row) for row in rows]


def row_of(event: PackedEvent, tenant: str, workflow_type: str, workflow_id: str) -> dict[str, Any]:
    """Return an event as a row of `episodic_events` is read, in the same order of columns."""
    return {
        "id": event.id,
        "event_type": event.event_type,
        "tenant": tenant,
        "workflow_type": workflow_type,
        "workflow_id": workflow_id,
        "task_id": event.task_id,
        "user_id": event.user_id,
        "agent_id": event.agent_id,
        "session_id": event.session_id,
        "timestamp": event.timestamp,
        "tool_id": event.tool_id,
        "success": event.success,
        "confidence": event.confidence,
        "data": json.loads(event.data),
        "extra": json.loads(event.extra) if event.extra else None,
    }
