"""Whether Redis still holds what was published to it: it may have been emptied or replaced.

One field per partition of `headstart.events`, set once all its thresholds are there, to the run id
of the server; and one per worker that serves what people set. Whatever takes the thresholds away
takes the fields with them, and a server that came back with an older snapshot, or another one, has
another run id. While a partition is being published the field holds a mark: where that is gone in
the end, something was taken meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, TypeVar

from redis.exceptions import ReadOnlyError, RedisError

from sinks.connections import RedisUnreachable, connect_redis

KEY: Final = "headstart:published"

Part = TypeVar("Part", int, str)
"""A partition, or a name for whatever else was published as a whole."""

_REMEMBER: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  return redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
"""


class PublishMarkers:
    """Remembers, in Redis, which partitions are published. Connects on first use."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis = connect_redis(redis_url, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def unpublished(self, partitions: Sequence[Part]) -> tuple[bytes, list[Part]]:
        """Return the server's run id, and those partitions that are not published there.

        Raises `RedisUnreachable`.
        """
        try:
            run = await self._run_id()
            found = await self._redis.hmget(KEY, [str(partition) for partition in partitions])
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error
        return run, [each for each, value in zip(partitions, found, strict=True) if value != run]

    async def now_ms(self) -> int:
        """Return what time it is by the server's clock, Unix ms. Raises `RedisUnreachable`."""
        try:
            seconds, microseconds = await self._redis.time()
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def begin(self, partition: int | str) -> bytes:
        """Mark that a partition is about to be published; return the mark.

        Raises `RedisUnreachable`.
        """
        mark = b"begun " + secrets.token_hex(8).encode()
        try:
            await self._redis.hset(KEY, str(partition), mark)
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error
        return mark

    async def remember(self, partition: int | str, run: bytes, mark: bytes) -> None:
        """Note that all thresholds of a partition went to the server that then had this run id.

        Does nothing where the mark is gone: what was published after it may be gone too. Raises
        `RedisUnreachable`.
        """
        try:
            await self._redis.eval(_REMEMBER, 1, KEY, str(partition), mark, run)
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error

    async def _run_id(self) -> bytes:
        """Return the server's run id; a server that has become a replica is left."""
        role, *_more = await self._redis.execute_command("ROLE")  # type: ignore[no-untyped-call]
        if role != b"master":
            await self._redis.connection_pool.disconnect()
            raise ReadOnlyError(f"its role is {role.decode()}")
        return str((await self._redis.info("server"))["run_id"]).encode()
