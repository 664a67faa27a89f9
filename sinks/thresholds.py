"""Thresholds to Redis, where executors read them: only newer versions, each announced.

Writing is idempotent and harmless from a late writer. When Redis is away, `publish` says so and
the caller keeps what waits (sinks/pending.py): learning never stops for it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain as chained
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from msgspec import UNSET
from redis.exceptions import NoScriptError, RedisError

from headstart.contexts import redis_key
from sinks.connections import RedisUnreachable, connect_redis
from topics.schema import Counts, Deviation, Threshold

MAX_CALL: Final = 100
"""Most thresholds in one script call: Redis serves nobody else while a script runs. A call for
each hash would cost a worker with many workflow types a quarter of its time."""

_SCRIPT: Final = (Path(__file__).parent / "publish.lua").read_text(encoding="utf-8")
_BURY: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
"""
_SHA: Final = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


Call = tuple[list[str], bytes]
"""Keys, and of each threshold the number of its key and four more; these packed as one argument,
because redis-py takes a microsecond for every argument."""
_key = lru_cache(maxsize=65_536)(redis_key)
_pack = msgspec.msgpack.Encoder().encode


class Value(msgspec.Struct, gc=False):
    """One field of a hash: a threshold without what key and field already name.

    The version comes behind numbers only, so that publish.lua finds it without decoding the rest.
    """

    speculate: float
    suggest: float
    epoch: int
    offset: int
    outcomes: int
    learner: str
    at: int
    gain: float | msgspec.UnsetType
    cost: float | msgspec.UnsetType
    counts: Counts | msgspec.UnsetType
    deviation: Deviation | msgspec.UnsetType


class Gone(msgspec.Struct):
    """The same of a context that has gone: its version stays, so that no late writer brings it
    back."""

    epoch: int
    offset: int
    deleted: bool = True


_encode = msgspec.json.Encoder().encode


def encode_value(t: Threshold) -> bytes:
    """Return the JSON of one field."""
    if t.deleted:
        return _encode(Gone(t.epoch, t.offset))
    gain, cost = (t.gain, t.cost) if t.gain or t.cost else (UNSET, UNSET)
    value = Value(
        t.speculate, t.suggest, t.epoch, t.offset, t.outcomes, t.learner, t.at, gain, cost,
        t.counts or UNSET, t.deviation or UNSET,
    )  # fmt: skip
    return _encode(value)


class ThresholdPublisher:
    """Writes thresholds to the hash `redis_key(tenant, workflow_type)`, one field per path.

    Each script call publishes on the channel named like the hash what it wrote: a JSON array of
    objects, the stored values with their `path`. Connects on first use.
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

    async def publish(self, batch: Sequence[Threshold]) -> int:
        """Publish `batch` in one round trip; return how many fields were written.

        Raises `RedisUnreachable`; part of the batch may then be written, and publishing it again
        does no harm.
        """
        calls = _calls(batch)
        if not calls:
            return 0
        try:
            results = await self._run(calls)
            lost = [c for c, r in zip(calls, results, strict=True) if isinstance(r, NoScriptError)]
            if lost:  # Redis is new, or has forgotten its scripts
                await self._redis.script_load(_SCRIPT)
                results = [r for r in results if not isinstance(r, NoScriptError)]
                results += await self._run(lost)
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error
        for result in results:
            if isinstance(result, Exception):
                raise RedisUnreachable(self._url, result) from result
        return sum(results)

    async def bury(self, gone: Iterable[Threshold]) -> None:
        """Take the fields of contexts that have gone away, where nothing newer is there.

        Raises `RedisUnreachable`.
        """
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for each in gone:
                    key = redis_key(each.tenant, each.workflow_type)
                    pipeline.eval(_BURY, 1, key, each.path, encode_value(each))
                await pipeline.execute()
        except (RedisError, OSError) as error:
            raise RedisUnreachable(self._url, error) from error

    async def _run(self, calls: Sequence[Call]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            for keys, packed in calls:
                pipeline.evalsha(_SHA, len(keys), *keys, packed)
            return await pipeline.execute(raise_on_error=False)


def _calls(batch: Sequence[Threshold]) -> list[Call]:
    """Return what each script call takes; of several calls thresholds of a hash stand together."""
    if len(batch) <= MAX_CALL:
        return [_call(batch)] if batch else []
    by_owner: dict[tuple[str, str], list[Threshold]] = defaultdict(list)
    for threshold in batch:
        by_owner[threshold.tenant, threshold.workflow_type].append(threshold)
    together = list(chained.from_iterable(by_owner.values()))
    return [_call(together[at : at + MAX_CALL]) for at in range(0, len(together), MAX_CALL)]


def _call(thresholds: Sequence[Threshold]) -> Call:
    numbers: dict[str, int] = {}
    arguments: list[Any] = []
    for each in thresholds:
        number = numbers.setdefault(_key(each.tenant, each.workflow_type), len(numbers) + 1)
        arguments += (number, each.path, encode_value(each).decode(), each.epoch, each.offset)
    return list(numbers), _pack(arguments)
