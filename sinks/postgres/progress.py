"""Reads the offsets that the sinks have stored."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from sinks.postgres.statements import load_statements

_SQL = load_statements("offsets")


async def stored_offsets(
    connection: AsyncConnection[Any], consumer: str, topic: str, epoch: int
) -> dict[int, int]:
    """Return the first offset that `consumer` has not yet stored, by partition."""
    of = {"consumer": consumer, "topic": topic, "epoch": epoch}
    cursor = await connection.execute(_SQL["next_offsets"], of)
    return dict(await cursor.fetchall())
