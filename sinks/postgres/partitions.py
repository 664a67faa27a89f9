"""Keeps a daily partition of `episodic_events` ready for every day that events are expected for.

Called when a worker starts and now and then afterwards, never on the write path: an event whose
day has no partition is stored in the default one, and moves when its day is made.
"""

from __future__ import annotations

import logging
from datetime import date, timedelta
from typing import Any, Final

from psycopg import AsyncConnection, errors, sql

_LOG = logging.getLogger(__name__)

# Not to_regclass: it may answer from a cache filled before we waited for the other maker.
_EXISTS: Final = (
    "SELECT EXISTS (SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
    " WHERE inhparent = 'episodic_events'::regclass AND relname = %s)"
)

# One maker at a time, until its transaction ends.
_LOCK_MAKERS: Final = "SELECT pg_advisory_xact_lock(hashtextextended('headstart partitions', 0))"

# Waiting for this lock makes readers and writers wait behind us, so not for long.
_LIMIT_WAITING: Final = "SET LOCAL lock_timeout = '2s'"

# Nobody may add a row of this day to the default partition while its rows move.
_LOCK_DEFAULT: Final = "LOCK TABLE episodic_events_default IN ACCESS EXCLUSIVE MODE"

# A table apart, attached when it is full: unlike PARTITION OF, that does not stop the ingest into
# all other days. Attaching gives it the parent's indexes and key.
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
    """Make the missing partitions around `today` (UTC); return the names of those made.

    Safe to call from several workers at once. Gives up until the next call, with a warning, where
    a long query holds the default partition: nothing is lost by that.
    """
    made = []
    for distance in range(-days_back, days_ahead + 1):
        day = today + timedelta(days=distance)
        try:
            if await _ensure_day(connection, day):
                made.append(partition_name(day))
        except errors.LockNotAvailable:
            _LOG.warning(
                "no partition for %s yet: the default partition is in use; its events go there "
                "and are moved later",
                day,
            )
            break
    return made


def partition_name(day: date) -> str:
    """Return the name of the partition that holds `day` (UTC)."""
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
            return False  # another worker was faster
        await connection.execute(_LIMIT_WAITING)
        await connection.execute(_LOCK_DEFAULT)
        for statement in (_CREATE, _MOVE, _ATTACH):
            await connection.execute(statement.format(**parts))
    return True


async def _exists(connection: AsyncConnection[Any], name: str) -> bool:
    row = await (await connection.execute(_EXISTS, [name])).fetchone()
    return bool(row and row[0])
