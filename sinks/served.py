"""What Redis serves, listed. Reading one context's threshold is the client's (`Thresholds`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import orjson

from headstart.contexts import DEFAULT_PATH, redis_key
from headstart.overrides import OVERRIDES_FIELD
from sinks.connections import asking_redis

_PATTERN = "headstart:thresholds:*"


async def served_thresholds(
    redis_url: str,
    tenant: str | None = None,
    *,
    defaults: bool = False,
    deleted: bool = False,
) -> AsyncIterator[dict[str, Any]]:
    """Yield the served thresholds of every context, of one tenant where named.

    Overrides are none: they say what is served instead. A tenant's default is of no context;
    `defaults` yields them too, `deleted` what says that a context has gone. Raises
    `RedisUnreachable`.
    """
    left_out = {OVERRIDES_FIELD.encode()}
    if not defaults:
        left_out.add(DEFAULT_PATH.encode())
    async with asking_redis(redis_url) as client:
        async for key in client.scan_iter(_PATTERN, count=500, _type="hash"):
            owner, workflow_type = key.decode().split(":")[2:4]
            if tenant is not None and unquote(owner) != tenant:
                continue
            for path, value in (await client.hgetall(key)).items():
                if path in left_out:
                    continue
                served = orjson.loads(value)
                if served.get("deleted") and not deleted:
                    continue
                yield {
                    "tenant": unquote(owner),
                    "workflow_type": unquote(workflow_type),
                    "path": path.decode(),
                    **served,
                }


async def served_chain(
    redis_url: str, tenant: str, workflow_type: str, paths: Sequence[str]
) -> tuple[list[dict[str, Any] | None], Any]:
    """Return what is served of each path, None where nothing is, and the overrides: asked once.

    Overrides that are no JSON are returned as they stand, in bytes. Raises `RedisUnreachable`.
    """
    async with asking_redis(redis_url) as client:
        raw = await client.hmget(redis_key(tenant, workflow_type), [OVERRIDES_FIELD, *paths])
    values = [None if each is None else orjson.loads(each) for each in raw[1:]]
    return values, _overrides(raw[0])


def _overrides(raw: bytes | None) -> Any:
    try:
        return [] if raw is None else orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw


def overrides_for(
    overrides: Iterable[Mapping[str, Any]], paths: Sequence[str], tool: str | None, now: int
) -> list[Mapping[str, Any]]:
    """Return the overrides in force at `now` (Unix ms) for a context, the most specific first.

    `paths`: of the context, coarse to fine. A finer path is more specific than a coarser one, and
    at one path an override of the tool more than one of every tool.
    """
    depth = {"": 0, **{path: place for place, path in enumerate(paths)}}
    found = [
        each
        for each in overrides
        if each["path"] in depth
        and each["tool"] in {None, tool}
        and (each["until"] is None or now < each["until"])
    ]
    return sorted(found, key=lambda each: (-depth[each["path"]], each["tool"] is None))


async def served_workflow_types(redis_url: str, tenant: str) -> set[str]:
    """Return the workflow types of a tenant that anything is served for.

    Raises `RedisUnreachable`.
    """
    pattern = f"{redis_key(tenant, '').translate(_GLOB)}*"
    async with asking_redis(redis_url) as client:
        keys = [key.decode() async for key in client.scan_iter(pattern, count=500, _type="hash")]
    return {unquote(key.split(":")[3]) for key in keys} - {""}  # the tenant's default


_GLOB = {ord(c): f"\\{c}" for c in "*?[]\\^"}
