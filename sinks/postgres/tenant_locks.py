"""Locks tenants between a purge and what stores or packs their rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection

from sinks.postgres.statements import load_statements

_SQL = load_statements("tenant_locks")


async def lock_tenants(
    connection: AsyncConnection[Any], shared: Iterable[str], alone: Iterable[str] = ()
) -> None:
    """Lock tenants until the transaction ends: `alone` for a purge, `shared` for a writer."""
    names = {**dict.fromkeys(shared, False), **dict.fromkeys(alone, True)}
    given = {"tenants": list(names), "alone": list(names.values())}
    await connection.execute(_SQL["lock_tenants"], given)
