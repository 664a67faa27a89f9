"""Notes in Redis which threshold worker learned last in each partition, and how far it was.

When a log is lost with its changelog, only the last owner's local store has all that was learned in
a partition. Each owner notes itself once, after its first commit: stores of earlier owners end
before that offset, its own does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

from sinks.connections import connect_redis, redis_client, reporting_redis_errors

KEY: Final = "headstart:last-owners"

# Only a later one is taken: a worker that was suspended may be late.
_NOTE: Final = """
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then
  local was = cjson.decode(known)
  local epoch, offset = tonumber(ARGV[2]), tonumber(ARGV[3])
  if was.epoch > epoch or (was.epoch == epoch and was.offset >= offset) then return 0 end
end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
"""


class LastOwner(NamedTuple):
    """A worker that learned up to an offset of a log epoch, which has `partitions` partitions."""

    epoch: int
    offset: int
    partitions: int
    name: str
    """The worker's instance name, and its host."""

    @property
    def version(self) -> tuple[int, int]:
        """The version of the partition's own row that its store has at least."""
        return self.epoch, self.offset


class LastOwners:
    """The notes of all partitions. Connects on first use."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis = connect_redis(redis_url, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def read(self) -> Mapping[int, LastOwner]:
        """Return the last owner of each partition that has one. Raises `RedisUnreachable`."""
        with reporting_redis_errors(self._url):
            found = await self._redis.hgetall(KEY)
        return {int(n): LastOwner(**orjson.loads(value)) for n, value in found.items()}

    async def note(self, partition: int, owner: LastOwner) -> None:
        """Note an owner, unless a later one is noted. Raises `RedisUnreachable`."""
        value, version = orjson.dumps(owner._asdict()), (str(owner.epoch), str(owner.offset))
        with reporting_redis_errors(self._url):
            await self._redis.eval(_NOTE, 1, KEY, str(partition), *version, value)


async def forget_last_owners(redis_url: str) -> int:
    """Forget all notes; return how many there were. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        count = int(await client.hlen(KEY))
        await client.delete(KEY)
    return count
