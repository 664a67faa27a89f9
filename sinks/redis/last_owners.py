"""Notes in Redis which worker learned each partition last, and how far.

After the log was recreated a partition's rows are only in the local store of its last owner, and a
worker that is given the partition must know whether its own store is that one. One field per
partition of `headstart.events`; a late writer never lowers a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from redis.exceptions import ResponseError

from sinks.connections import connect_redis, reporting_redis_errors
from sinks.redis.lua import script

KEY: Final = "headstart:owners"
_NOTE: Final = script("note_owners")


class PartitionOwner(msgspec.Struct, frozen=True):
    """The worker that learned a partition last. `worker`: its instance name."""

    epoch: int
    offset: int
    """The last offset that its table has applied, -1: none of this epoch."""
    partitions: int
    """Of that log epoch."""
    worker: str
    open: bool
    """Whether it may have learned more than is noted: it has not given the partition back."""

    @property
    def version(self) -> tuple[int, int]:
        """(epoch, offset)."""
        return self.epoch, self.offset


_decode = msgspec.json.Decoder(PartitionOwner).decode


class LastOwners:
    """Reads and writes the notes. Connects on first use."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis = connect_redis(redis_url, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def read(self) -> dict[int, PartitionOwner]:
        """Return the notes by partition, without damaged ones. Raises `RedisUnreachable`."""
        found: Mapping[bytes, bytes] = {}
        with reporting_redis_errors(self._url):
            try:
                found = await self._redis.hgetall(KEY)
            except ResponseError as error:
                if not str(error).startswith("WRONGTYPE"):
                    raise
        notes = {}
        for field, value in found.items():
            try:
                notes[int(field)] = _decode(value)
            except ValueError:
                continue
        return notes

    async def note(self, owners: Mapping[int, PartitionOwner]) -> None:
        """Note the owners of partitions, unless Redis has a higher version.

        Of the same version one that has the partition open counts. Raises `RedisUnreachable`.
        """
        if not owners:
            return
        words = [w for number, each in owners.items() for w in (number, msgspec.json.encode(each))]
        with reporting_redis_errors(self._url):
            await self._redis.eval(_NOTE, 1, KEY, *words)
