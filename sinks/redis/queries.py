"""Lists what Redis serves. The client (`Thresholds`) reads the threshold of one context."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

import orjson
from redis.exceptions import ResponseError

from headstart.keys import DEFAULT_PATH, redis_key
from headstart.thresholds.overrides import OVERRIDES_FIELD
from sinks.connections import redis_client
from sinks.redis.masters import scan_keys
from sinks.redis.stored_fields import UnreadableValue, owner_of, read_stored

_PREFIX: Final = "headstart:thresholds:"
THRESHOLD_KEYS: Final = f"{_PREFIX}*"
"""The pattern of the hashes of all thresholds."""


class UnreadableFields(NamedTuple):
    """A field that cannot be read as a threshold. `path` "": the whole key."""

    tenant: str
    workflow_type: str
    path: str
    why: str

    def __str__(self) -> str:
        where = f"{self.path or 'the key'} of {self.tenant!r}, {self.workflow_type!r}"
        return f"unreadable in Redis: {where}: {self.why}"


REMEDY: Final = (
    "a threshold worker replaces fields of contexts within some minutes, `headstart thresholds "
    "republish` at once; other fields and keys stay until they are removed by hand"
)
"""The remedy for unreadable fields."""


async def served_fields(
    client: Any, tenant: str | None = None, unreadable: list[UnreadableFields] | None = None
) -> AsyncIterator[tuple[str, str, bytes, bytes]]:
    """Yield tenant, workflow type, name and value of every field in every hash of thresholds.

    Fields whose names begin with an exclamation mark are skipped: they are not thresholds. Invalid
    keys are appended to `unreadable`.
    """
    problems = [] if unreadable is None else unreadable
    seen: set[bytes] = set()
    async for key in scan_keys(client, THRESHOLD_KEYS):
        if key in seen:
            continue
        seen.add(key)
        owner = owner_of(key)
        if owner is None:
            if tenant is None:
                name = key.removeprefix(_PREFIX.encode()).decode(errors="backslashreplace")
                problems.append(
                    UnreadableFields("", name, "", "no tenant and workflow type have this key")
                )
            continue
        if tenant is not None and owner[0] != tenant:
            continue
        try:
            fields = await client.hgetall(key)
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            kind = (await client.type(key)).decode()
            problems.append(UnreadableFields(*owner, "", f"it is a {kind}, not a hash"))
            continue
        for name, raw in fields.items():
            if not name.startswith(b"!"):
                yield *owner, name, raw


async def served_thresholds(
    redis_url: str,
    tenant: str | None = None,
    *,
    defaults: bool = False,
    deleted: bool = False,
    unreadable: list[UnreadableFields] | None = None,
) -> AsyncIterator[dict[str, Any]]:
    """Yield the served thresholds of every context, or of one tenant's.

    Without overrides. `defaults`: also tenants' defaults, which belong to no context; `deleted`:
    also markers of deleted contexts. Unreadable fields are skipped and appended to `unreadable`.
    Raises `RedisUnreachable`.
    """
    problems = [] if unreadable is None else unreadable
    async with redis_client(redis_url) as client:
        async for owner, workflow_type, name, raw in served_fields(client, tenant, problems):
            path = name.decode(errors="backslashreplace")
            if name == DEFAULT_PATH.encode() and not defaults:
                continue
            try:
                served = read_stored(raw)
            except UnreadableValue as error:
                problems.append(UnreadableFields(owner, workflow_type, path, str(error)))
                continue
            if deleted or not served.get("deleted"):
                where = {"tenant": owner, "workflow_type": workflow_type, "path": path}
                yield {**where, **served, **where}


async def served_chain(
    redis_url: str,
    tenant: str,
    workflow_type: str,
    paths: Sequence[str],
    unreadable: list[UnreadableFields] | None = None,
) -> tuple[list[dict[str, Any] | None], Any]:
    """Return the served value of each path (None: none), and the overrides, in one request.

    Unreadable values count as missing, as for a reader, and are appended to `unreadable`.
    Unreadable overrides are returned unparsed. Raises `RedisUnreachable`.
    """
    problems = [] if unreadable is None else unreadable
    where, key = (tenant, workflow_type), redis_key(tenant, workflow_type)
    async with redis_client(redis_url) as client:
        try:
            overrides, *raw = await client.hmget(key, [OVERRIDES_FIELD, *paths])
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            problems.append(UnreadableFields(*where, "", "it is not a hash"))
            return [None] * len(paths), []
    values: list[dict[str, Any] | None] = []
    for path, each in zip(paths, raw, strict=True):
        try:
            values.append(None if each is None else read_stored(each))
        except UnreadableValue as error:
            problems.append(UnreadableFields(*where, path, str(error)))
            values.append(None)
    return values, _overrides(overrides, where, problems)


def _overrides(raw: bytes | None, where: tuple[str, str], problems: list[UnreadableFields]) -> Any:
    try:
        found = [] if raw is None else orjson.loads(raw)
    except orjson.JSONDecodeError:
        found = raw
    if not isinstance(found, list):
        reason = f"not a list of overrides: {found!s:.80}"
        problems.append(UnreadableFields(*where, OVERRIDES_FIELD, reason))
    return found
