"""Migrates a database to the newest schema: applies each of `migrations/` once, in order.

All migrations of one run share one transaction and one advisory lock, so a run is atomic, and two
runs at once are safe. There are no down migrations.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from sinks.connections import connect_postgres, postgres_address, reporting_lost_connections
from sinks.postgres.memory_schema import complete_schema
from sinks.postgres.permissions import REFUSED, PermissionMissing
from sinks.postgres.statements import load_statements

FOLDER = Path(__file__).parent / "migrations"
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_SQL = load_statements("migrations")


class MigrationError(RuntimeError):
    """The database cannot be migrated to this version. Nothing was changed."""


class MigrationChanged(MigrationError):
    """A migration was edited after it had been applied."""


class DatabaseNewer(MigrationError):
    """The database has migrations of a newer version."""


class Migration(NamedTuple):
    """One migration: the number and name of its file, and its SQL."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


def read_migrations(folder: Path = FOLDER) -> list[Migration]:
    """Return the migrations of `folder` (files NNNN_name.sql), oldest first."""
    migrations = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path} is not named NNNN_name.sql")
        migrations.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    return migrations


async def migrate(dsn: str, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Apply missing migrations; return their names ("0001_episodic_events").

    Also adds what the memory's schema could not have before (`memory_schema.complete_schema`).

    Raises `PostgresUnreachable`, `MigrationChanged`, `DatabaseNewer` and `PermissionMissing`.
    """
    known = read_migrations() if migrations is None else migrations
    try:
        with reporting_lost_connections(dsn):
            missing = await _migrated(dsn, known)
    except REFUSED as error:
        raise PermissionMissing(dsn, error) from error
    return [str(migration) for migration in missing]


async def _migrated(dsn: str, known: Sequence[Migration]) -> list[Migration]:
    """Apply missing migrations in one transaction; return them."""
    async with await connect_postgres(dsn) as connection, connection.transaction():
        await connection.execute(_SQL["lock"])
        await _create_record(connection)
        missing = await _missing(connection, known, postgres_address(dsn))
        for migration in missing:
            await _apply(connection, migration)
        await complete_schema(connection)
    return missing


async def _create_record(connection: AsyncConnection[Any]) -> None:
    """Create the table of applied migrations if it is missing: creating needs a permission."""
    if not await _has_record(connection):
        await connection.execute(_SQL["create_record"])


async def _has_record(connection: AsyncConnection[Any]) -> bool:
    row = await (await connection.execute(_SQL["has_record"])).fetchone()
    return bool(row and row[0])


async def pending(dsn: str, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Return the names of the migrations that `migrate` would apply; raises as it does."""
    known = read_migrations() if migrations is None else migrations
    async with await connect_postgres(dsn) as connection:
        if not await _has_record(connection):
            return [str(migration) for migration in known]
        missing = await _missing(connection, known, postgres_address(dsn))
    return [str(migration) for migration in missing]


async def _missing(
    connection: AsyncConnection[Any], known: Sequence[Migration], address: str
) -> list[Migration]:
    """Return the migrations not yet applied. Raises `DatabaseNewer` and `MigrationChanged`."""
    by_version = {migration.version: migration for migration in known}
    cursor = await connection.execute(_SQL["applied"])
    for version, name, checksum in await cursor.fetchall():
        migration = by_version.pop(version, None)
        if migration is None:
            raise DatabaseNewer(
                f"the database {address} was migrated by a newer version of Headstart "
                f"({version:04}_{name} is unknown here): run that version, or use another database"
            )
        if migration.checksum != checksum:
            raise MigrationChanged(
                f"migration {migration} has changed since it was applied to {address}: restore "
                "its text, and put the change into a new migration"
            )
    return list(by_version.values())


async def _apply(connection: AsyncConnection[Any], migration: Migration) -> None:
    await connection.execute(migration.text.encode())
    await connection.execute(
        _SQL["record"],
        {
            "version": migration.version,
            "name": migration.name,
            "checksum": migration.checksum,
        },
    )
