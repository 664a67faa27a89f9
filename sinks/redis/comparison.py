"""Compares the fields of Redis with expected values, and replaces those that differ.

`sinks.redis.stored_fields` decides what is wrong, `agents.thresholds.redis_repair` when to check. A
value is replaced only if it is still the one that was read, so that a newer one is never lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

import msgspec
from redis.exceptions import NoScriptError

from headstart.keys import redis_key
from sinks.connections import connect_redis, reporting_redis_errors
from sinks.redis.lua import script
from sinks.redis.masters import by_slot, is_cluster, scan_batches
from sinks.redis.stored_fields import MOST_BYTES, Field, field_of, owner_of
from sinks.redis.thresholds import announced_value
from topics.schema.json_schema import PublishedThreshold

AT_ONCE: Final = 100
"""Most fields in one script call: Redis is blocked while a script runs."""
_PATTERN: Final = "headstart:thresholds:*"
REPAIRED_KEPT_MS: Final = 7 * 86_400_000
"""How long the repair number (Unix ms, or higher if set so) outlives the last path of its hash, so
that readers that were disconnected notice the repair."""
_NOTHING: Final = "?"
"""An expected value that no field has, so that the stored one is returned."""
_pack = msgspec.msgpack.Encoder().encode
_encode = msgspec.json.Encoder().encode


class Expected(NamedTuple):
    """A field and its expected value; None: the field should not exist."""

    field: Field
    value: bytes | None


class StoredField(NamedTuple):
    """A field's actual value. `raw` None: it does not exist; `digest` identifies the value.

    `other_type`: the Redis type of its key if that is not a hash.
    """

    field: Field
    raw: bytes | None
    digest: str
    other_type: str | None = None


class Repair(NamedTuple):
    """A value that was read, and its replacement; None: delete the field."""

    stored: StoredField
    threshold: PublishedThreshold | None


class _Script(NamedTuple):
    text: str
    sha: str


def _script(name: str) -> _Script:
    text = script(name)
    return _Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


_COMPARE, _REPAIR, _FIELDS = (_script(n) for n in ("compare", "repair", "fields"))


class RedisComparison:
    """Compares and replaces fields. Connects on first use; calls raise `RedisUnreachable`."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis: Any = connect_redis(redis_url, timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def differing(self, expected: Sequence[Expected]) -> list[StoredField]:
        """Return the fields that differ from the expected values."""
        found: list[StoredField] = []
        for at in range(0, len(expected), AT_ONCE):
            found += await self._differing(expected[at : at + AT_ONCE])
        return found

    async def _differing(self, expected: Sequence[Expected]) -> list[StoredField]:
        of_key: dict[str, list[Expected]] = {}
        for each in expected:
            of_key.setdefault(_key(each.field), []).append(each)
        found: list[StoredField] = []
        for keys in self._together(of_key):
            packed = _pack(
                [
                    [
                        part
                        for e in of_key[key]
                        for part in (e.field.path, e.value.decode() if e.value else _NOTHING)
                    ]
                    for key in keys
                ]
            )
            answer = await self._run(_COMPARE, keys, packed, MOST_BYTES)
            found += _read(answer, [of_key[key] for key in keys])
        return found

    def _together(self, keys: Iterable[str]) -> list[list[str]]:
        """Return the keys of each script call: all, on a cluster those of one slot."""
        return by_slot(keys) if is_cluster(self._redis) else [list(keys)]

    async def repair(self, repairs: Sequence[Repair], now: int) -> list[bool]:
        """Replace values that are unchanged since they were read; return which. `now`: Unix ms."""
        done: dict[Field, bool] = {}
        for at in range(0, len(repairs), AT_ONCE):
            of_key: dict[str, list[Repair]] = {}
            for each in repairs[at : at + AT_ONCE]:
                of_key.setdefault(_key(each.stored.field), []).append(each)
            for keys in self._together(of_key):
                packed = _pack([[p for e in of_key[key] for p in _packed(e)] for key in keys])
                answer = await self._run(_REPAIR, keys, packed, now)
                fields = [e.stored.field for key in keys for e in of_key[key]]
                done |= {field: bool(each) for field, each in zip(fields, answer, strict=True)}
        return [done[each.stored.field] for each in repairs]

    async def fields(
        self, foreign: list[dict[str, str]] | None = None, *, tidy_at: int = 0
    ) -> AsyncIterator[list[Field]]:
        """Yield every field that may be a context, in batches, perhaps more than once.

        Invalid keys and fields are appended to `foreign`. `tidy_at`: Unix ms now, to delete hashes
        that hold only an old repair number; 0: read only.
        """
        before = tidy_at - REPAIRED_KEPT_MS if tidy_at else -1
        others: dict[tuple[bytes, bytes], dict[str, str]] = {}
        scanned = aiter(scan_batches(self._redis, _PATTERN, count=5 * AT_ONCE))
        while True:
            with reporting_redis_errors(self._url):
                keys = await anext(scanned, None)
            if keys is None:
                break
            for key in keys:
                if owner_of(key) is None:
                    others[key, b""] = {"key": _shown(key), "field": ""}
                    continue
                async for some in self._fields(key, others, before):
                    yield some
            yield []  # lets the caller do other work
        if foreign is not None:
            foreign += others.values()

    async def _fields(
        self, key: bytes, others: dict[tuple[bytes, bytes], dict[str, str]], before: int
    ) -> AsyncIterator[list[Field]]:
        cursor: bytes | int = 0
        while True:
            cursor, names = await self._run(_FIELDS, [key], cursor, AT_ONCE, before)
            found = {name: field_of(key, name) for name in names if not name.startswith(b"!")}
            for name in [name for name, field in found.items() if field is None]:
                others[key, name] = {"key": _shown(key), "field": _shown(name)}
            yield [field for field in found.values() if field is not None]
            if not int(cursor):
                return

    async def _run(self, script: _Script, keys: Sequence[str | bytes], *arguments: Any) -> Any:
        with reporting_redis_errors(self._url):
            try:
                return await self._redis.evalsha(script.sha, len(keys), *keys, *arguments)
            except NoScriptError:
                return await self._redis.eval(script.text, len(keys), *keys, *arguments)


def _shown(name: bytes) -> str:
    return name[:500].decode(errors="backslashreplace")


def _key(field: Field) -> str:
    return redis_key(field.tenant, field.workflow_type)


def _read(answer: Sequence[Any], given: Sequence[Sequence[Expected]]) -> Iterator[StoredField]:
    for number, *found in answer:
        some = given[number - 1]
        if len(found) == 1:
            kind = found[0].decode()
            yield from (StoredField(each.field, None, "", kind) for each in some)
            continue
        place, digest, raw = found
        seen = digest.decode()
        yield StoredField(some[place - 1].field, raw if seen else None, seen)


def _packed(repair: Repair) -> tuple[str, str, str, int]:
    path, digest = repair.stored.field.path, repair.stored.digest
    if repair.threshold is None:
        return path, digest, (b'{"path":%b}' % _encode(path)).decode(), 0
    announced, begin = announced_value(repair.threshold)
    return path, digest, announced.decode(), begin
