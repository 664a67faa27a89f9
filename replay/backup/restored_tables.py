"""Writes the tables of a backup to an empty database, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from psycopg import AsyncConnection

from replay.backup.manifest import BackupFile, Manifest, UnusableBackup
from replay.backup.packed_files import unpacked_chunks
from sinks.postgres.index_building import without_indexes
from sinks.postgres.table_copy import (
    StoredTable,
    add_days,
    analyze,
    begin_restore,
    copy_in,
    delete_later_history,
    lock_empty,
    set_for_restore,
    set_sequence,
    stored_tables,
)

INDEXES_AFTER: Final = 50_000
"""Rows of a table from which on its indexes are built when they are there."""


class CannotRestore(RuntimeError):
    """The backup does not fit the system; nothing was changed."""


class RestoredTables:
    """The tables that a backup is restored to."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        folder: Path,
        manifest: Manifest,
        echo: Callable[[str], None],
    ) -> None:
        self._connection, self._folder = connection, folder
        self._manifest, self._echo = manifest, echo

    async def write(self, *, same_log: bool) -> None:
        """Write all tables and the mark of this backup, in one transaction.

        Raises `CannotRestore`, `NotEmpty`, `UnusableBackup` and the errors of Postgres.
        """
        connection, manifest = self._connection, self._manifest
        tables = {each.name: each for each in await stored_tables(connection)}
        files = [(self._table_of(file, tables), file) for file in manifest.of_kind("table")]
        async with connection.transaction():
            await set_for_restore(connection)
            await lock_empty(connection, tables.values())
            await add_days(connection, manifest.days)
            await set_for_restore(connection)
            for table, file in files:
                await self._copy(table, file)
            for each in manifest.sequences:
                if each.table not in tables:
                    raise UnusableBackup(f"{self._folder}: an unknown table {each.table}")
                await set_sequence(
                    connection, each.table, each.column, each.last_value, each.is_called
                )
            if not same_log:
                await delete_later_history(connection, manifest.epoch, manifest.applied)
            await begin_restore(connection, manifest.id, manifest.epoch)
        await analyze(connection, tables.values())

    def _table_of(self, file: BackupFile, tables: Mapping[str, StoredTable]) -> StoredTable:
        table = tables.get(file.table or "")
        if table is None and file.entries:
            raise CannotRestore(
                f"the backup has the table {file.table}, and the database has not: it needs the "
                "same extensions (pgvector). Nothing was changed"
            )
        found = table or StoredTable(file.table or "", ())
        if table is not None and set(file.columns) != set(table.columns):
            raise CannotRestore(f"the table {file.table} has other columns than in the backup")
        return StoredTable(found.name, file.columns)

    async def _copy(self, table: StoredTable, file: BackupFile) -> None:
        if not file.entries:
            return
        begun = time.monotonic()
        indexes: AbstractAsyncContextManager[None] = nullcontext()
        if file.entries >= INDEXES_AFTER:
            indexes = without_indexes(self._connection, table.name)
        async with indexes:
            rows = await copy_in(self._connection, table, unpacked_chunks(self._folder, file))
        if rows != file.entries:
            raise UnusableBackup(
                f"{self._folder / file.name}: {rows:,} rows, {file.entries:,} were written"
            )
        self._echo(f"{table.name}: {rows:,} rows in {time.monotonic() - begun:.1f} s")
