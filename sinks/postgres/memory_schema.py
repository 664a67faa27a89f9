"""Adds what the memory has only where the database allows it: vectors, GIN indexes and roles.

Runs with every migration, and leaves what exists as it is. What cannot be made is skipped with a
warning that has the statement to run: everything else works without it, and the next `headstart
migrate` adds what has become possible.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, errors

from sinks.postgres.statements import load_statements

_LOG = logging.getLogger(__name__)
_SQL = load_statements("memory_schema")

ROLES: Final = ("headstart_sink", "headstart_worker", "headstart_reader")
MIN_PGVECTOR: Final = (0, 8, 4)
"""Older versions corrupt HNSW indexes in vacuum or write beyond a buffer while building them."""
_NOT_THERE: Final = (
    errors.InsufficientPrivilege,
    errors.FeatureNotSupported,  # the package of the extension is not installed
    errors.UndefinedFile,
)
_MADE_MEANWHILE: Final = (errors.DuplicateObject, errors.UniqueViolation)


async def complete_schema(connection: AsyncConnection[Any]) -> list[str]:
    """Add what is missing and possible; return one line for each part that is not.

    Call it within a transaction: each part has a savepoint.
    """
    if not await _asked(connection, "has_episodes"):
        return []
    parts = (_gin_indexes, _vectors, _roles)
    left_out = [line for part in parts if (line := await part(connection))]
    for line in left_out:
        _LOG.warning("%s", line)
    return left_out


def grants_of_roles() -> list[str]:
    """Return the statements that make the roles if they are missing, and grant them their rights.

    Those on vectors have an effect only where the database has their table.
    """
    found = []
    for name in ROLES:
        create = _statement(f"create_{name}")
        found.append(
            f"DO $$ BEGIN\n    {create};\nEXCEPTION WHEN duplicate_object THEN NULL;\nEND $$;"
        )
    found.append(f"{_statement('grant')};")
    guarded = _statement("grant_vectors").replace("\n", "\n        ")
    found.append(
        "DO $$ BEGIN\n    IF to_regclass('episode_vectors') IS NOT NULL THEN\n"
        f"        {guarded};\n    END IF;\nEND $$;"
    )
    steps = (
        "grant_purges", "grant_packing", "grant_migrations", "grant_consolidation", "grant_keys",
        "grant_quarantine", "grant_upkeep",
    )  # fmt: skip
    return found + [f"{_statement(step)};" for step in steps]


def _statement(name: str) -> str:
    """Return an SQL statement without its comment."""
    lines = _SQL[name].decode().splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def pgvector_problem(version: str | None) -> str:
    """Return why vectors cannot be stored with this version of pgvector; "" if they can."""
    least = ".".join(map(str, MIN_PGVECTOR))
    if version is None:
        return (
            f"the extension vector (pgvector {least} or newer) is missing: install its package on "
            "the database server, run as a superuser: CREATE EXTENSION vector; then `headstart "
            "migrate`"
        )
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < MIN_PGVECTOR:
        return (
            f"pgvector {version} can corrupt its indexes: install {least} or newer on the database "
            "server, run as a superuser: ALTER EXTENSION vector UPDATE; then `headstart migrate`"
        )
    return ""


async def installed_pgvector(connection: AsyncConnection[Any]) -> str | None:
    """Return the version of the extension vector in this database; None: there is none."""
    found = await (await connection.execute(_SQL["extensions"])).fetchall()
    return dict(found).get("vector")


async def _gin_indexes(connection: AsyncConnection[Any]) -> str:
    problem = await _refused(connection, "create_btree_gin")
    if await _asked(connection, "has_gin") == 2:
        return ""
    if not problem:
        await connection.execute(_SQL["create_tenant_gin"])
        return ""
    await connection.execute(_SQL["create_plain_gin"])
    return (
        "the memory searches words and contexts over all tenants, which is slower: run as a "
        f"superuser: CREATE EXTENSION btree_gin; then `headstart migrate` ({problem})"
    )


async def _vectors(connection: AsyncConnection[Any]) -> str:
    if await _asked(connection, "has_vectors"):
        return ""
    await _refused(connection, "create_vector")
    if problem := pgvector_problem(await installed_pgvector(connection)):
        return f"the memory stores no vectors, and answers without them: {problem}"
    problem = await _refused(connection, "create_vectors")
    return f"the memory stores no vectors, and answers without them: {problem}" if problem else ""


async def _roles(connection: AsyncConnection[Any]) -> str:
    missing = [
        name for (name,) in await (await connection.execute(_SQL["missing_roles"])).fetchall()
    ]
    for name in missing:
        if problem := await _refused(connection, f"create_{name}"):
            create = "; ".join(
                _SQL[f"create_{name}"].decode().rpartition("\n")[2] for name in missing
            )
            return (
                "the roles that separate sink, worker and reader were not made, and no role is "
                f"limited to one tenant ({problem}); if you want them, run as a superuser: "
                f"{create}; then `headstart migrate`"
            )
    has_vectors = await _asked(connection, "has_vectors")
    steps = {
        "grant": await _asked(connection, "granted"),
        "grant_vectors": not has_vectors or await _asked(connection, "vectors_granted"),
        "grant_purges": await _asked(connection, "purges_granted"),
        "grant_packing": await _asked(connection, "packing_granted"),
        "grant_migrations": await _asked(connection, "migrations_granted"),
        "grant_consolidation": await _asked(connection, "consolidation_granted"),
        "grant_keys": await _asked(connection, "keys_granted"),
        "grant_quarantine": await _asked(connection, "quarantine_granted"),
        "grant_upkeep": await _asked(connection, "upkeep_granted"),
    }
    for step, done in steps.items():
        if not done and (problem := await _refused(connection, step)):
            return (
                f"the roles headstart_* were not given their rights ({problem}): run `headstart "
                "migrate` as the owner of the tables"
            )
    return ""


async def _asked(connection: AsyncConnection[Any], question: str) -> Any:
    row = await (await connection.execute(_SQL[question])).fetchone()
    return row[0] if row else None


async def _refused(connection: AsyncConnection[Any], statement: str) -> str:
    """Run a statement in a savepoint; return why it was refused, "" if it was not."""
    try:
        async with connection.transaction():
            await connection.execute(_SQL[statement])
    except _NOT_THERE as error:
        return _reason(error)
    except _MADE_MEANWHILE:
        return ""  # another database of the server is being migrated, and roles belong to all
    return ""


def _reason(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error)).split())
