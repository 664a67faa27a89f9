"""Copies all tables out of a database in one snapshot, and into an empty one in one transaction.

Postgres' binary COPY. The tables are those that the migrations create; partitions are read and
written through their parents.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, sql

from headstart.keys import event_key
from headstart.partitioner import partition_for_key
from sinks.postgres.migrate import read_migrations
from sinks.postgres.progress import advance_offsets
from sinks.postgres.statements import load_statements

_SQL = load_statements("backup")
_CREATED = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)

LEFT_OUT: Final[Mapping[str, str]] = {
    "schema_migrations": "`migrate` writes it; the manifest names the migrations",
}
"""Our tables that no backup has. A table that is neither here nor copied fails a test."""


class StoredTable(NamedTuple):
    """A table and its columns, by name."""

    name: str
    columns: tuple[str, ...]


class NotEmpty(RuntimeError):
    """The database has rows already."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the database is not empty: {table} has rows. Restore into a new one; nothing was "
            "changed"
        )


def own_tables() -> list[str]:
    """Return the names of the tables that this version's schema creates, but `LEFT_OUT`."""
    texts = [each.text for each in read_migrations()]
    texts.append(load_statements("memory_schema")["create_vectors"].decode())
    return sorted({name for text in texts for name in _CREATED.findall(text)})


@asynccontextmanager
async def snapshot(connection: AsyncConnection[Any]) -> AsyncIterator[None]:
    """Let all statements of the block see one moment; they change nothing."""
    async with connection.transaction():
        for statement in _SQL["snapshot"].decode().split(";"):
            await connection.execute(statement.encode())
        yield


async def stored_tables(connection: AsyncConnection[Any]) -> list[StoredTable]:
    """Return our tables as the database has them."""
    rows = await _rows(connection, "tables", names=own_tables())
    return [StoredTable(name, tuple(columns)) for name, columns in rows]


async def copy_out(
    connection: AsyncConnection[Any], table: StoredTable, write: Callable[[bytes], None]
) -> int:
    """Write a table in COPY's binary format; return the number of its rows."""
    # Not `COPY table`: it does not read partitions before Postgres 18.
    statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT binary)").format(
        _columns(table), sql.Identifier(table.name)
    )
    async with connection.cursor() as cursor:
        async with cursor.copy(statement) as copying:
            async for block in copying:
                write(bytes(block))
        return cursor.rowcount


async def copy_in(
    connection: AsyncConnection[Any], table: StoredTable, chunks: Iterable[bytes]
) -> int:
    """Append to a table what `copy_out` has written; return the number of rows."""
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(table.name), _columns(table)
    )
    async with connection.cursor() as cursor:
        async with cursor.copy(statement) as copying:
            for chunk in chunks:
                await copying.write(chunk)
        return cursor.rowcount


def _columns(table: StoredTable) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, table.columns))


async def lock_empty(connection: AsyncConnection[Any], tables: Iterable[StoredTable]) -> None:
    """Take the lock of a restore in a transaction. Raises `NotEmpty`."""
    await connection.execute(_SQL["lock_restore"])
    for table in tables:
        name = sql.Identifier(table.name)
        found = await connection.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(name))
        if await found.fetchone() is not None:
            raise NotEmpty(table.name)


async def set_for_restore(connection: AsyncConnection[Any]) -> None:
    """Let a transaction last as long as it takes, and have memory to build indexes with."""
    await connection.execute(_SQL["restore_settings"])


async def event_days(connection: AsyncConnection[Any]) -> list[str]:
    """Return the days with a partition of events, as YYYYMMDD."""
    return [row[0] for row in await _rows(connection, "days")]


async def add_days(connection: AsyncConnection[Any], days: Iterable[str]) -> None:
    """Add the partitions of days that have none."""
    for day in days:
        await connection.execute(_SQL["add_day"], {"day": day})


async def read_sequences(
    connection: AsyncConnection[Any], tables: Iterable[StoredTable]
) -> list[tuple[str, str, int, bool]]:
    """Return (table, column, last value, whether that was given) of the identity columns."""
    found = []
    for table in tables:
        for column, sequence in await _rows(connection, "identities", table=table.name):
            name = sql.SQL(".").join(map(sql.Identifier, sequence.split(".")))
            query = sql.SQL("SELECT last_value, is_called FROM {}").format(name)
            row = await (await connection.execute(query)).fetchone()
            assert row is not None
            found.append((table.name, column, row[0], row[1]))
    return found


async def set_sequence(
    connection: AsyncConnection[Any], table: str, column: str, value: int, called: bool
) -> None:
    """Set the sequence of an identity column."""
    await connection.execute(
        "SELECT setval(pg_get_serial_sequence(%s, %s), %s, %s)", (table, column, value, called)
    )


async def restored_epoch(connection: AsyncConnection[Any], backup: str) -> tuple[bool, int] | None:
    """Return None if no table is restored from this backup; else whether all of it is.

    With that goes the log epoch: of the backup, or that in which all of it goes on.
    """
    rows = await _rows(connection, "restored", id=backup)
    return (rows[0][0] == 1, rows[0][1]) if rows else None


async def begin_restore(connection: AsyncConnection[Any], backup: str, epoch: int) -> None:
    """Mark that the tables are restored from a backup, in the transaction that does it."""
    await connection.execute(_SQL["begin_restore"], {"id": backup, "epoch": epoch})


async def finish_restore(
    connection: AsyncConnection[Any],
    backup: str,
    epoch: int,
    progress: Sequence[tuple[str, str, Mapping[int, int]]] = (),
) -> None:
    """Mark a restore as whole in a log epoch, in a transaction with where sinks continue.

    `progress`: (consumer, topic, first offset that is not stored by partition).
    """
    async with connection.transaction():
        for consumer, topic, offsets in progress:
            await advance_offsets(connection, consumer, topic, epoch, offsets)
        await connection.execute(_SQL["finish_restore"], {"id": backup, "epoch": epoch})


async def delete_later_history(
    connection: AsyncConnection[Any], epoch: int, applied: Mapping[int, int]
) -> int:
    """Delete the steps of thresholds behind these offsets; return how many there were.

    Steps of a tenant's default have no workflow type, and offsets of partition 0.
    """
    lowest = min(applied.values(), default=-1)
    found = await _rows(connection, "later_history", epoch=epoch, offset=lowest)
    by_partition: dict[int, list[tuple[str, str]]] = {}
    for tenant, workflow_type in found:
        key = event_key(tenant, workflow_type)
        place = partition_for_key(key, len(applied)) if workflow_type else 0
        by_partition.setdefault(place, []).append((tenant, workflow_type))
    count = 0
    for place, pairs in by_partition.items():
        tenants, types = zip(*pairs, strict=True)
        given: dict[str, Any] = {"epoch": epoch, "offset": applied[place]}
        given |= {"tenants": list(tenants), "types": list(types)}
        count += (await connection.execute(_SQL["delete_later_history"], given)).rowcount
    return count


async def analyze(connection: AsyncConnection[Any], tables: Iterable[StoredTable]) -> None:
    """Collect the planner's statistics: none were restored."""
    for table in tables:
        await connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table.name)))


async def _rows(connection: AsyncConnection[Any], name: str, **given: Any) -> list[Any]:
    return await (await connection.execute(_SQL[name], given or None)).fetchall()
