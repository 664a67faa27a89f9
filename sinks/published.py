"""Whether Redis still holds what was published to it: it may have been emptied or replaced.

One field per partition of `headstart.events`, set once all its thresholds are there, to the run id
of the server. Whatever takes the thresholds away takes the field with them, and a server that came
back with an older snapshot, or another one, has another run id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from redis.exceptions import RedisError

from sinks.connections import RedisUnreachable, connect_redis

KEY: Final = "headstart:published"


class Published:
    """Remembers, in Redis, which partitions are published. Connects on first use."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis = connect_redis(redis_url, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def forgotten(self, partitions: Sequence[int]) -> tuple[bytes, list[int]]:
        """Return the server's run id, and those partitions that are not published there.

        Raises `RedisUnreachable`.
        """
        try:
            run = await self._run_id()
            found = await self._redis.hmget(KEY, [str(partition) for partition in partitions])
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error
        return run, [each for each, value in zip(partitions, found, strict=True) if value != run]

    async def remember(self, partition: int, run: bytes) -> None:
        """Note that all thresholds of a partition went to the server that then had this run id.

        Raises `RedisUnreachable`.
        """
        try:
            await self._redis.hset(KEY, str(partition), run)
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error

    async def _run_id(self) -> bytes:
        return str((await self._redis.info("server"))["run_id"]).encode()
