"""What something else does to Redis, and the model of how a worker compares and repairs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

import orjson

from headstart.keys import workflow_type_of
from sinks.redis.comparison import Expected, Repair, StoredField
from sinks.redis.stored_fields import Field
from sinks.redis.thresholds import encode_value
from tests.simulation.databases import Redis, redis_call, version_of
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

HOW: Final = (
    "newer",
    "a bit newer",
    "differing",
    "unreadable",
    "deleted",
    "unknown",
    "all deleted",
)
UNREADABLE_VERSION: Final = (-1, -1)
FUTURE: Final = 9_999_999


class Comparison:
    """Stands in for `sinks.redis.comparison.RedisComparison`; each call may fail alone."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def differing(self, expected: Sequence[Expected]) -> list[StoredField]:
        found: list[StoredField] = await redis_call(
            self._process, "redis.compare", lambda redis: _differing(redis, expected)
        )
        return found

    async def repair(self, repairs: Sequence[Repair], _now: int) -> list[bool]:
        done: list[bool] = await redis_call(
            self._process, "redis.repair", lambda redis: [_replaced(redis, r) for r in repairs]
        )
        return done

    async def fields(self, *, tidy_at: int) -> AsyncIterator[list[Field]]:
        yield await redis_call(
            self._process,
            "redis.fields",
            lambda redis: [
                Field(tenant, workflow_type_of(path), path) for tenant, path in redis.values
            ],
        )

    async def close(self) -> None:
        """Nothing to close."""


def _digest(raw: bytes | None) -> str:
    return "" if raw is None else sha1(raw, usedforsecurity=False).hexdigest()


def _differing(redis: Redis, expected: Sequence[Expected]) -> list[StoredField]:
    found = []
    for field, value in expected:
        raw = redis.values.get((field.tenant, field.path), (None, None))[1]
        if raw is None or raw != value:
            found.append(StoredField(field, raw, _digest(raw)))
    return found


def same(redis: Redis, repair: Repair) -> bool:
    """Return whether a value is still what was seen."""
    field = repair.stored.field
    raw = redis.values.get((field.tenant, field.path), (None, None))[1]
    return _digest(raw) == repair.stored.digest


def _replaced(redis: Redis, repair: Repair) -> bool:
    if not same(redis, repair):
        return False
    place = repair.stored.field.tenant, repair.stored.field.path
    known = redis.values.pop(place, None)
    if repair.threshold is None:
        return True
    version = version_of(repair.threshold)
    if known is not None and version < known[0] and (place, known[1]) not in redis.tampered:
        redis.went_back.append(f"{place} from {known[0]} to {version}, by a repair")
    redis.values[place] = (version, encode_value(repair.threshold))
    return True


def tamper(world: World, how: str) -> None:
    """Change what Redis holds behind the service's back."""
    redis, chance = world.redis, world.chance
    if not redis.values:
        return
    place = chance.choice(sorted(redis.values))
    if how == "deleted":
        del redis.values[place]
    elif how == "all deleted":
        for each in [each for each in redis.values if each[0] == place[0]]:
            del redis.values[each]
    elif how == "unreadable":
        _put(redis, place, chance.choice([b"{oops", b"[1]", b"", b"\xff"]), UNREADABLE_VERSION)
    elif how == "unknown":
        path = f"{place[1]}/made=up"
        if "=" in place[1]:
            _change(redis, (place[0], path), place, _later(world, chance.choice([-3, 2, FUTURE])))
    else:
        more = {"newer": FUTURE, "a bit newer": chance.randint(1, 12), "differing": 0}[how]
        _change(redis, place, place, _later(world, more))


def _later(world: World, more: int) -> Callable[[Any], dict[str, int]]:
    epoch = world.epoch.number
    if more == FUTURE:
        return lambda _value: {"epoch": epoch + more, "offset": 1}
    return lambda value: {"epoch": epoch, "offset": max(-1, value["offset"] + more)}


def _change(
    redis: Redis, place: tuple[str, str], like: tuple[str, str],
    version: Callable[[Any], dict[str, int]],
) -> None:  # fmt: skip
    try:
        value = orjson.loads(redis.values[like][1])
        value |= {"speculate": 0.01, **version(value)}
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return  # it was tampered with before
    _put(redis, place, orjson.dumps(value), (value["epoch"], value["offset"]))


def _put(redis: Redis, place: tuple[str, str], raw: bytes, version: tuple[int, int]) -> None:
    redis.tampered.add((place, raw))
    redis.values[place] = (version, raw)
