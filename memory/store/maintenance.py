"""Notes when the tasks of the memory's daily maintenance have ended, and says how long ago."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from memory.store.merging import SQL

Task = Literal["consolidate", "prune"]
EVERY_S: Final = 86_400.0
OVERDUE_S: Final = 2 * EVERY_S
"""Without the task for so long, something is wrong."""


class TaskAge(NamedTuple):
    """When a task last ended. `finished`: Unix ms."""

    finished: int
    age_s: float


async def last_finished(connection: AsyncConnection[Any], task: Task) -> TaskAge | None:
    """Return when a task last ended; None: never."""
    row = await (await connection.execute(SQL["finished"], {"task": task})).fetchone()
    return TaskAge(*row) if row else None


async def oldest_packed_s(connection: AsyncConnection[Any]) -> float:
    """Return the seconds since the last event of the oldest packed run; 0: there is none."""
    row = await (await connection.execute(SQL["oldest_cold"])).fetchone()
    return float(row[0]) if row and row[0] is not None else 0.0


async def note_finished(
    connection: AsyncConnection[Any],
    task: Task,
    counts: Mapping[str, int],
    horizon: datetime | None = None,
) -> None:
    """Store that a task has ended now. `horizon`: events of before were deleted."""
    given = {"task": task, "counts": Jsonb(dict(counts)), "horizon": horizon}
    await connection.execute(SQL["note_finished"], given)
