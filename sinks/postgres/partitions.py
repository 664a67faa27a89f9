"""Creates the daily partitions of `episodic_events` ahead of time.

Called at a worker's start and periodically, never on the write path: an event of a day without a
partition is stored in the default one, and moves when its day's partition is created.
"""

from __future__ import annotations

import logging
from datetime import date, timedelta
from typing import Any, Final

from psycopg import AsyncConnection, errors, sql

_LOG = logging.getLogger(__name__)

# Not to_regclass: it may use a cache from before another process created the partition.
_EXISTS: Final = (
    "SELECT EXISTS (SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
    " WHERE inhparent = 'episodic_events'::regclass AND relname = %s)"
)

# One process creates partitions at a time, until its transaction ends.
_LOCK_MAKERS: Final = "SELECT pg_advisory_xact_lock(hashtextextended('headstart partitions', 0))"

# Readers and writers queue behind our wait for this lock, so limit it.
_LIMIT_WAITING: Final = "SET LOCAL lock_timeout = '2s'"

# No row of this day may be added to the default partition while its rows move.
_LOCK_DEFAULT: Final = "LOCK TABLE episodic_events_default IN ACCESS EXCLUSIVE MODE"

# A separate table, attached when it is filled: unlike PARTITION OF, this does not block inserts
# into other days. Attaching adds the parent's indexes and key.
_CREATE: Final = sql.SQL(
    "CREATE TABLE {name} (LIKE episodic_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
)
_MOVE: Final = sql.SQL(
    "WITH moved AS (DELETE FROM episodic_events_default"
    " WHERE timestamp >= {start} AND timestamp < {end} RETURNING *)"
    " INSERT INTO {name} SELECT * FROM moved"
)
_ATTACH: Final = sql.SQL(
    "ALTER TABLE episodic_events ATTACH PARTITION {name} FOR VALUES FROM ({start}) TO ({end})"
)


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
    name = partition_name(day)
    if await _exists(connection, name):
        return False
    parts = {
        "name": sql.Identifier(name),
        "start": sql.Literal(f"{day} 00:00:00+00"),
        "end": sql.Literal(f"{day + timedelta(days=1)} 00:00:00+00"),
    }
    async with connection.transaction():
        await connection.execute(_LOCK_MAKERS)
        if await _exists(connection, name):
            return False  # another worker created it
        await connection.execute(_LIMIT_WAITING)
        await connection.execute(_LOCK_DEFAULT)
        for statement in (_CREATE, _MOVE, _ATTACH):
            await connection.execute(statement.format(**parts))
    return True


async def _exists(connection: AsyncConnection[Any], name: str) -> bool:
    row = await (await connection.execute(_EXISTS, [name])).fetchone()
    return bool(row and row[0])
