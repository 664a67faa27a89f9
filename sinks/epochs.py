"""The largest log epochs stored in Postgres and Redis, so that a new one is larger."""

from __future__ import annotations

from typing import Final

from sinks.connections import connect_postgres, redis_client
from sinks.postgres.statements import load_statements

REDIS_KEY: Final = "headstart:epoch"
"""The key in Redis that holds the largest epoch."""

_SQL = load_statements("offsets")

# Only ever raised, also when two processes write at once.
_RAISE: Final = """
local known = tonumber(redis.call('GET', KEYS[1]) or '')
if not known or tonumber(ARGV[1]) > known then redis.call('SET', KEYS[1], ARGV[1]) end
"""


async def known_epochs(postgres_dsn: str, redis_url: str) -> list[int]:
    """Return the largest epoch in Postgres and the largest in Redis, if any.

    A database without our tables has none. Raises `PostgresUnreachable` and `RedisUnreachable`,
    because a new epoch chosen without these could be in use already.
    """
    found = (await _in_postgres(postgres_dsn), await _in_redis(redis_url))
    return [epoch for epoch in found if epoch is not None]


async def remember_epoch(redis_url: str, number: int) -> None:
    """Store an epoch in Redis unless it has a larger one. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        await client.eval(_RAISE, 1, REDIS_KEY, str(number))


async def _in_postgres(dsn: str) -> int | None:
    async with await connect_postgres(dsn) as connection:
        migrated = await (await connection.execute(_SQL["has_offsets"])).fetchone()
        if not migrated or not migrated[0]:
            return None
        row = await (await connection.execute(_SQL["largest_epoch"])).fetchone()
        return row[0] if row else None


async def _in_redis(url: str) -> int | None:
    async with redis_client(url) as client:
        value = await client.get(REDIS_KEY)
    return None if value is None else int(value)
