"""Markers to detect that Redis lost published data, because it was emptied or replaced.

One field per partition of `headstart.events`, set to the server's run id once all thresholds of the
partition are published, and one per worker that publishes commands. The fields are lost together
with the thresholds, and a server restarted with an older snapshot has another run id. While a
partition is being published its field holds a token: if that is gone at the end, data was lost
meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, TypeVar

from redis.exceptions import ReadOnlyError

from sinks.connections import connect_redis, reporting_redis_errors
from sinks.redis.masters import is_cluster, run_id, times

KEY: Final = "headstart:published"

Part = TypeVar("Part", int, str)
"""A partition, or the name of something else that is published as a whole."""

_REMEMBER: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  return redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
"""


class PublishMarkers:
    """Records in Redis which partitions are published. Connects on first use."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis = connect_redis(redis_url, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def unpublished(self, partitions: Sequence[Part]) -> tuple[bytes, list[Part]]:
        """Return the server's run id, and the partitions that are not published there.

        On a cluster the run id stands for all masters (`sinks.redis.masters.run_id`). Raises
        `RedisUnreachable`.
        """
        with reporting_redis_errors(self._url):
            run = await self._run_id()
            found = await self._redis.hmget(KEY, [str(partition) for partition in partitions])
        return run, [each for each, value in zip(partitions, found, strict=True) if value != run]

    async def now_ms(self) -> int:
        """Return the server's time, Unix ms, on a cluster the median of its masters.

        Raises `RedisUnreachable`.
        """
        with reporting_redis_errors(self._url):
            found = await times(self._redis)
        seconds, microseconds = sorted(found)[len(found) // 2]
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def begin(self, partition: int | str) -> bytes:
        """Mark that publishing of a partition begins; return the token.

        Raises `RedisUnreachable`.
        """
        mark = b"begun " + secrets.token_hex(8).encode()
        with reporting_redis_errors(self._url):
            await self._redis.hset(KEY, str(partition), mark)
        return mark

    async def remember(self, partition: int | str, run: bytes, mark: bytes) -> None:
        """Mark a partition as published to the server with this run id.

        Does nothing if the token is gone: thresholds published after it may be lost too. Raises
        `RedisUnreachable`.
        """
        with reporting_redis_errors(self._url):
            await self._redis.eval(_REMEMBER, 1, KEY, str(partition), mark, run)

    async def _run_id(self) -> bytes:
        """Return the server's run id; disconnect from a server that has become a replica."""
        if is_cluster(self._redis):
            return await run_id(self._redis)
        role, *_more = await self._redis.execute_command("ROLE")
        if role != b"master":
            await self._redis.connection_pool.disconnect()
            raise ReadOnlyError(f"its role is {role.decode()}")
        return await run_id(self._redis)
