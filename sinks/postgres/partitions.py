"""Creates the daily partitions of `episodic_events` ahead of time.

Called at a worker's start and periodically, never on the write path: an event of a day without a
partition is stored in the default one, and moves when its day's partition is created.
"""

from __future__ import annotations

import logging
from datetime import date, timedelta
from typing import Any, Final, LiteralString

from psycopg import AsyncConnection, errors

_LOG = logging.getLogger(__name__)

# Not to_regclass: it may use a cache from before another process created the partition.
_EXISTS: Final = (
    "SELECT EXISTS (SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
    " WHERE inhparent = 'episodic_events'::regclass AND relname = %s)"
)
# Of migration 0010: runs as the owner of the tables, which the role of the sink need not be.
_ADD: Final = "SELECT add_event_partition(%s)"


async def ensure_partitions(
    connection: AsyncConnection[Any], today: date, days_back: int = 8, days_ahead: int = 3
) -> list[str]:
    """Create missing partitions around `today` (UTC); return their names.

    Safe to call from several workers at once. If a long query holds the default partition, logs a
    warning and returns; the next call continues.
    """
    made = []
    for distance in range(-days_back, days_ahead + 1):
        day = today + timedelta(days=distance)
        try:
            if await _ensure_day(connection, day):
                made.append(partition_name(day))
        except errors.LockNotAvailable:
            _LOG.warning(
                "cannot create the partition for %s: the default partition is locked; events of "
                "this day are stored there and moved later",
                day,
            )
            break
    return made


def partition_name(day: date) -> str:
    """Return the name of the partition for `day` (UTC)."""
    return f"episodic_events_{day:%Y%m%d}"


async def _ensure_day(connection: AsyncConnection[Any], day: date) -> bool:
    if await _asked(connection, _EXISTS, partition_name(day)):
        return False
    return await _asked(connection, _ADD, day)


async def _asked(connection: AsyncConnection[Any], question: LiteralString, what: object) -> bool:
    row = await (await connection.execute(question, [what])).fetchone()
    return bool(row and row[0])
