"""Publishes thresholds to Redis, where executors read them: only newer versions, each announced.

Writes are idempotent and a late writer does no harm. When Redis is unreachable, `publish` raises
and the caller keeps the thresholds (`sinks.redis.pending`): learning does not stop.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Self

import msgspec
from redis.exceptions import NoScriptError

from headstart.keys import redis_key
from sinks.connections import RedisUnreachable, connect_redis, reporting_redis_errors
from sinks.redis.lua import script
from sinks.redis.masters import by_slot, is_cluster, load_script
from topics.schema.json_schema import PublishedThreshold

MAX_CALL: Final = 100
"""Most thresholds in one script call: Redis is blocked while a script runs. One call per hash would
cost a worker with many workflow types a quarter of its time."""

_SCRIPT: Final = script("publish")
_DELETE_IF_UNCHANGED: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
"""
_SHA: Final = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


Call = tuple[list[str], bytes]
"""Keys, and the other arguments of publish.lua packed as one, because redis-py takes a microsecond
per argument."""
_key = lru_cache(maxsize=65_536)(redis_key)
_pack = msgspec.msgpack.Encoder().encode
_encode = msgspec.json.Encoder().encode


class DeletedContext(msgspec.Struct):
    """The value of a deleted context: its version stays, so that no late writer restores it."""

    epoch: int
    offset: int
    deleted: bool = True


def encode_value(t: PublishedThreshold) -> bytes:
    """Return the JSON of one field: a threshold without the names in key and field."""
    announced, begin = announced_value(t)
    return b"{" + announced[begin - 1 :]


def announced_value(t: PublishedThreshold) -> tuple[bytes, int]:
    """Return the value with its path as JSON, and the position, from 1, after the path.

    Only numbers precede the version, so that publish.lua finds it without decoding the rest.
    """
    if t.deleted:
        head = b'{"path":' + _encode(t.path) + b","
        return head + _encode(DeletedContext(t.epoch, t.offset))[1:], len(head) + 1
    whole = _encode(t)
    # Quotes within strings are escaped, so these are the fields.
    path = whole.index(b',"path":') + 1
    rest = whole.index(b',"speculate":', path) + 1
    return b"{" + whole[path:], rest - path + 2


class ThresholdPublisher:
    """Writes thresholds to the hash `redis_key(tenant, workflow_type)`, one field per path.

    Each script call announces what it wrote on the channel named like the hash: a JSON array of the
    stored values with their `path`. Connects on first use.
    """

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis = connect_redis(redis_url, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def publish(self, batch: Sequence[PublishedThreshold]) -> int:
        """Publish `batch` in one round trip; return how many fields were written.

        On a cluster that is one round trip per master, all at the same time.

        Raises `RedisUnreachable`; part of the batch may be written then, and repeating the call is
        harmless.
        """
        calls = _calls(batch, clustered=is_cluster(self._redis))
        if not calls:
            return 0
        with reporting_redis_errors(self._url):
            results = await self._run(calls)
            lost = [c for c, r in zip(calls, results, strict=True) if isinstance(r, NoScriptError)]
            if lost:  # Redis is new, or its script cache was flushed
                await load_script(self._redis, _SCRIPT)
                results = [r for r in results if not isinstance(r, NoScriptError)]
                results += await self._run(lost)
        for result in results:
            if isinstance(result, Exception):
                raise RedisUnreachable(self._url, result) from result
        return sum(results)

    async def delete_expired(self, gone: Iterable[PublishedThreshold]) -> None:
        """Delete the fields of deleted contexts, unless they hold something newer.

        Raises `RedisUnreachable`.
        """
        with reporting_redis_errors(self._url):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for each in gone:
                    key = redis_key(each.tenant, each.workflow_type)
                    pipeline.execute_command(
                        "EVAL", _DELETE_IF_UNCHANGED, 1, key, each.path, encode_value(each)
                    )
                await pipeline.execute()

    async def _run(self, calls: Sequence[Call]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for keys, packed in calls:
                pipeline.execute_command("EVALSHA", _SHA, len(keys), *keys, packed)
            found: list[Any] = await pipeline.execute(raise_on_error=False)
        return found


def _calls(batch: Sequence[PublishedThreshold], *, clustered: bool = False) -> list[Call]:
    """Return the arguments of each script call; thresholds of a hash are grouped together.

    `clustered`: the hashes of a call are in one slot.
    """
    if clustered:
        of_key: dict[str, list[PublishedThreshold]] = defaultdict(list)
        for threshold in batch:
            of_key[_key(threshold.tenant, threshold.workflow_type)].append(threshold)
        in_slot = ([t for key in keys for t in of_key[key]] for keys in by_slot(of_key))
        return [call for some in in_slot for call in _calls(some)]
    if len(batch) <= MAX_CALL:
        return [_call(batch)] if batch else []
    by_owner: dict[tuple[str, str], list[PublishedThreshold]] = defaultdict(list)
    for threshold in batch:
        by_owner[threshold.tenant, threshold.workflow_type].append(threshold)
    together = list(chain.from_iterable(by_owner.values()))
    return [_call(together[at : at + MAX_CALL]) for at in range(0, len(together), MAX_CALL)]


def _call(thresholds: Sequence[PublishedThreshold]) -> Call:
    of_key: dict[str, list[Any]] = {}
    for each in thresholds:
        announced, begin = announced_value(each)
        of_key.setdefault(_key(each.tenant, each.workflow_type), []).extend(
            (each.path, each.epoch, each.offset, announced.decode(), begin)
        )
    return list(of_key), _pack(list(of_key.values()))
