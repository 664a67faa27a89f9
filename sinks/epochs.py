"""The log epochs that the databases remember, so that a new one can be minted above them."""

from __future__ import annotations

from typing import Final

from redis.exceptions import RedisError

from sinks.connections import RedisUnreachable, connect_postgres, connect_redis
from sinks.postgres.statements import load_statements

REDIS_KEY: Final = "headstart:epoch"
"""Where Redis keeps the largest epoch it was told of."""

_SQL = load_statements("offsets")

# Never backwards, also when two processes tell it at once.
_RAISE: Final = """
local known = tonumber(redis.call('GET', KEYS[1]) or '')
if not known or tonumber(ARGV[1]) > known then redis.call('SET', KEYS[1], ARGV[1]) end
"""


async def known_epochs(postgres_dsn: str, redis_url: str) -> list[int]:
    """Return the largest epoch in Postgres and the largest in Redis, where there is one.

    A database that was never migrated knows none. Raises `PostgresUnreachable` and
    `RedisUnreachable`: minting without asking could give a number that is taken.
    """
    found = (await _in_postgres(postgres_dsn), await _in_redis(redis_url))
    return [epoch for epoch in found if epoch is not None]


async def remember_epoch(redis_url: str, number: int) -> None:
    """Tell Redis of an epoch; a smaller one than it knows changes nothing.

    Raises `RedisUnreachable`.
    """
    client = connect_redis(redis_url)
    try:
        await client.eval(_RAISE, 1, REDIS_KEY, str(number))
    except (RedisError, OSError) as error:
        raise RedisUnreachable(redis_url, error) from error
    finally:
        await client.aclose()


async def _in_postgres(dsn: str) -> int | None:
    async with await connect_postgres(dsn) as connection:
        migrated = await (await connection.execute(_SQL["has_offsets"])).fetchone()
        if not migrated or not migrated[0]:
            return None
        row = await (await connection.execute(_SQL["largest_epoch"])).fetchone()
        return row[0] if row else None


async def _in_redis(url: str) -> int | None:
    client = connect_redis(url)
    try:
        value = await client.get(REDIS_KEY)
    except (RedisError, OSError) as error:
        raise RedisUnreachable(url, error) from error
    finally:
        await client.aclose()
    return None if value is None else int(value)
