"""Every table of the schema is in a backup, or is named as left out; all columns come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg import sql

from processing.records.partitioner import partition_for
from sinks.connections import connect_postgres
from sinks.postgres.index_building import without_indexes
from sinks.postgres.migrate import migrate
from sinks.postgres.table_copy import (
    LEFT_OUT,
    NotEmpty,
    add_days,
    copy_in,
    copy_out,
    delete_later_history,
    event_days,
    lock_empty,
    read_sequences,
    set_sequence,
    snapshot,
    stored_tables,
)
from tests.databases import made_database
from tests.memory.complaints.purging import everybody, filled

pytestmark = pytest.mark.integration

RELATIONS = """
    SELECT c.relname, c.relkind::text FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
        AND c.relkind IN ('r', 'p', 'm', 'f', 'S')
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
"""
TRIGGERS = """
    SELECT conname::text FROM pg_constraint WHERE contype = 'f'
    UNION ALL SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal
"""
NEEDED = """
    SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute a
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND a.attidentity = ''
        AND a.attnotnull AND NOT a.atthasdef
"""
VALUES = {
    "uuid": "00000000-0000-7000-8000-000000000001",
    "jsonb": "{}",
    "timestamp with time zone": "2026-01-02 03:04:05.678901+00",
    "boolean": "true",
    "bytea": "\\x0001ff",
    "text": "x\t\\N\n\u00e9",
    "text[]": '{"a,b",NULL}',
    "double precision[]": "{0.1}",
}
STEP = "INSERT INTO threshold_history VALUES (%s, %s, %s, %s, %s, .9, .8, 1, 'hops', now())"
STEPS = 'SELECT workflow_type, epoch, "offset" FROM threshold_history'
INDEXES = """
    SELECT i.indrelid::regclass::text, i.indisvalid,
        regexp_replace(pg_get_indexdef(i.indexrelid), 'INDEX \\S+ ON', ''), p.inhrelid IS NOT NULL,
        CASE WHEN p.inhrelid IS NULL THEN i.indexrelid::regclass::text END, c.contype::text,
        pg_get_constraintdef(c.oid), CASE WHEN p.inhrelid IS NULL THEN c.conname::text END
    FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
        LEFT JOIN pg_inherits p ON p.inhrelid = i.indexrelid
        LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid
    WHERE t.relnamespace = 'public'::regnamespace ORDER BY 1, 3
"""
"""All indexes and keys; of those of partitions Postgres chooses the names."""
CHECKED = {"stage": "reuse", "status": "active", "task": "prune", "state": "active"}
"""Of columns that allow certain values only."""


@pytest.fixture
def other(postgres_dsn: str) -> Iterator[str]:
    """A second database with our tables."""
    with made_database(postgres_dsn) as dsn:
        asyncio.run(migrate(dsn))
        yield dsn


def add_row(connection: psycopg.Connection[Any], table: str) -> None:
    needed = connection.execute(NEEDED, (table,)).fetchall()
    values = [CHECKED.get(name) or VALUES.get(kind, "1") for name, kind in needed]
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier(table),
        sql.SQL(", ").join(sql.Identifier(name) for name, _kind in needed),
        sql.SQL(", ").join(map(sql.Literal, values)),
    )
    connection.execute(statement)


def contents(dsn: str, table: str) -> list[str]:
    query = sql.SQL("SELECT t::text FROM {} t ORDER BY 1").format(sql.Identifier(table))
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute(query)]


async def copy(source: str, target: str) -> list[str]:
    """Copy all tables as a backup does, in its order; return their names."""
    async with (
        await connect_postgres(source) as read,
        await connect_postgres(target) as write,
        snapshot(read),
        write.transaction(),
    ):
        tables = await stored_tables(read)
        await lock_empty(write, await stored_tables(write))
        await add_days(write, await event_days(read))
        for table in tables:
            blocks: list[bytes] = []
            count = await copy_out(read, table, blocks.append)
            assert await copy_in(write, table, blocks) == count
        for each in await read_sequences(read, tables):
            await set_sequence(write, *each)
    return [each.name for each in tables]


def test_every_table_is_in_a_backup_or_named_as_left_out(migrated: str) -> None:
    async def found() -> tuple[set[str], int]:
        async with await connect_postgres(migrated) as connection:
            tables = await stored_tables(connection)
            return {each.name for each in tables}, len(await read_sequences(connection, tables))

    copied, sequences = asyncio.run(found())
    with psycopg.connect(migrated) as connection:
        relations = connection.execute(RELATIONS).fetchall()
        others = connection.execute(TRIGGERS).fetchall()
    tables = {name for name, kind in relations if kind != "S"}
    assert tables - LEFT_OUT.keys() == copied, "back it up, or name it in LEFT_OUT"
    assert LEFT_OUT.keys() <= tables
    assert [kind for _name, kind in relations].count("S") == sequences, "of an identity column?"
    assert others == [], "tables are copied by name: their order would matter"


def test_all_rows_and_columns_come_back(migrated: str, other: str) -> None:
    filled(migrated, *everybody())
    with psycopg.connect(migrated) as connection:
        for name, kind in connection.execute(RELATIONS).fetchall():
            if kind != "S" and not contents(migrated, name):
                add_row(connection, name)
    names = asyncio.run(copy(migrated, other))
    assert "tenant_keys" in names
    for name in names:
        assert contents(migrated, name), f"{name} has no row to compare"
        assert contents(other, name) == contents(migrated, name), name
    with psycopg.connect(other) as connection:
        add_row(connection, "memory_audit")  # with an id that no restored row has
    with pytest.raises(NotEmpty, match=r"is not empty: \w+ has rows"):
        asyncio.run(copy(migrated, other))


def test_all_indexes_and_keys_are_built_again(migrated: str) -> None:
    filled(migrated, *everybody())

    async def build() -> tuple[list[Any], list[Any], list[Any]]:
        async with await connect_postgres(migrated) as connection, connection.transaction():

            async def indexes() -> list[Any]:
                return await (await connection.execute(INDEXES.encode())).fetchall()

            before = await indexes()
            async with AsyncExitStack() as dropped:
                for table in await stored_tables(connection):
                    await dropped.enter_async_context(without_indexes(connection, table.name))
                meanwhile = await indexes()
            return before, meanwhile, await indexes()

    before, meanwhile, after = asyncio.run(build())
    assert after == before
    assert {table for table, *_rest in meanwhile} == LEFT_OUT.keys()
    assert {kind for *_rest, kind, _text, _name in before} >= {None, "p"}
    assert any(partitioned for _table, _valid, _text, partitioned, *_rest in before)


@pytest.mark.parametrize("number", range(4))
def test_steps_behind_what_was_learned_are_deleted(migrated: str, number: int) -> None:
    """Of tenants whose partitions differ: a default's steps have offsets of partition 0."""
    tenant, types = f"tenant-{number}", [f"type-{each}" for each in range(6)]
    applied = {place: 10 * place + 10 for place in range(4)}
    wanted = set()
    with psycopg.connect(migrated) as connection:
        for name in ["", *types]:
            place = partition_for(tenant, name, len(applied)) if name else 0
            for offset in (applied[place] - 1, applied[place], applied[place] + 1, 90):
                connection.execute(STEP, (tenant, name, f"path {name}", 7, offset))
                wanted |= {(name, 7, offset)} if offset <= applied[place] else set()
            connection.execute(STEP, (tenant, name, f"path {name}", 6, 90))
            wanted.add((name, 6, 90))

    async def delete() -> int:
        async with await connect_postgres(migrated) as connection:
            return await delete_later_history(connection, 7, applied)

    assert asyncio.run(delete()) == 2 * (len(types) + 1)
    with psycopg.connect(migrated) as connection:
        assert set(connection.execute(STEPS).fetchall()) == wanted
