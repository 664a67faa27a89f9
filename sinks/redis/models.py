"""Publishes snapshots of shared models to Redis, where executors read them: only newer versions."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from redis.exceptions import ResponseError

from headstart.keys import model_key
from sinks.connections import connect_redis, redis_client, reporting_redis_errors
from sinks.redis.lua import script
from sinks.redis.masters import scan_keys

Version = tuple[int, int]
"""(epoch, offset) of the last record that is in a snapshot."""
_PREFIX: Final = "headstart:model:"
MODEL_KEYS: Final = f"{_PREFIX}*"
"""The pattern of the hashes of all models."""
_SCRIPT: Final = script("model")
_DELETE_VERSION: Final = """
if redis.call('HGET', KEYS[1], 'version') == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
_NUMBER: Final = rb"0|[1-9]\d{0,17}"
_VERSION: Final = re.compile(rb"(%s):(-1|%s)" % (_NUMBER, _NUMBER))
"""As sinks/redis/model.lua reads it."""


class ModelPublisher:
    """Writes the hashes `model_key(tenant, workflow_type)`. Connects on first use."""

    def __init__(self, redis_url: str, *, timeout_s: float = 2.0) -> None:
        self._url = redis_url
        self._redis = connect_redis(redis_url, timeout_s)
        self._script = self._redis.register_script(_SCRIPT)

    async def publish(
        self,
        tenant: str,
        workflow_type: str,
        version: Version,
        reset: Version,
        snapshot: bytes,
        *,
        wrong: Version | None = None,
    ) -> bool:
        """Publish a snapshot; return False if Redis has the same version, or a newer one.

        `reset`: (epoch, offset) of the last reset, as in `topics.models.records`. `wrong`: a
        version that is replaced although it is newer. Raises `RedisUnreachable`.
        """
        with reporting_redis_errors(self._url):
            key = model_key(tenant, workflow_type)
            arguments: list[int | str | bytes] = [
                *version,
                "{}:{}".format(*reset),
                snapshot,
                time.time_ns() // 1_000_000,
                "" if wrong is None else "{}:{}".format(*wrong),
            ]
            return bool(await self._script(keys=[key], args=arguments))

    async def versions(self, keys: Sequence[tuple[str, str]]) -> list[Version | None]:
        """Return the versions in Redis of (tenant, workflow type); None: no valid one.

        Raises `RedisUnreachable`.
        """
        with reporting_redis_errors(self._url):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for tenant, workflow_type in keys:
                    pipeline.hget(model_key(tenant, workflow_type), "version")
                answers = await pipeline.execute(raise_on_error=False)
        return [parse_version(answer) for answer in answers]

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


def parse_version(value: Any) -> Version | None:
    """Return the version in a field's value, None if it is missing or damaged."""
    found = _VERSION.fullmatch(value) if isinstance(value, bytes) else None
    return None if found is None else (int(found[1]), int(found[2]))


class ServedModel(NamedTuple):
    """A snapshot in Redis with its version. `at`: when it was published, Unix ms, 0 if unknown.

    `size`: bytes of the snapshot, which is empty where only versions were asked for.
    """

    tenant: str
    workflow_type: str
    epoch: int
    offset: int
    at: int
    snapshot: bytes
    size: int

    @property
    def names(self) -> tuple[str, str]:
        """Tenant and workflow type."""
        return self.tenant, self.workflow_type


async def is_served(redis_url: str, tenant: str, workflow_type: str) -> bool:
    """Return whether Redis has a snapshot of a model. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as redis:
        try:
            return bool(await redis.hexists(model_key(tenant, workflow_type), "snapshot"))
        except ResponseError:  # a key of another type
            return False


async def delete_ahead(
    redis_url: str, tenant: str, workflow_type: str, end: Version
) -> Version | None:
    """Delete the hash of a model if its version is at `end` or later; return that version.

    No snapshot of a worker would replace it. Raises `RedisUnreachable`.
    """
    key = model_key(tenant, workflow_type)
    async with redis_client(redis_url) as redis:
        try:
            stored = await redis.hget(key, "version")
            version = parse_version(stored)
            if version is None or version < end:
                return None
            deleted = await redis.eval(_DELETE_VERSION, 1, key, stored)
        except ResponseError:  # a key of another type
            return None
    return version if deleted else None  # else a worker has replaced it


async def served_models(
    redis_url: str, tenant: str | None = None, *, snapshots: bool = True
) -> list[ServedModel]:
    """Return the snapshots in Redis, by tenant and workflow type; what is damaged is left out.

    `snapshots`: whether to read them, and not only their sizes. Raises `RedisUnreachable`.
    """
    found = {}
    async with redis_client(redis_url) as redis:
        async for key in scan_keys(redis, MODEL_KEYS):
            names = model_names(key)
            if names is None or tenant not in (None, names[0]):
                continue
            try:
                wanted = ("version", "at", "snapshot") if snapshots else ("version", "at")
                version_field, at, snapshot = [*await redis.hmget(key, *wanted), b""][:3]
                size = len(snapshot or b"") if snapshots else await redis.hstrlen(key, "snapshot")
            except ResponseError:  # a key of another type
                continue
            version, at = parse_version(version_field), at or b""
            if version is not None and size:
                at_ms = int(at) if at.isdigit() else 0
                found[names] = ServedModel(*names, *version, at_ms, snapshot or b"", size)
    return [found[names] for names in sorted(found)]


def model_names(key: bytes) -> tuple[str, str] | None:
    """Return the tenant and workflow type of a key; None if no model has it."""
    try:
        parts = key.decode().removeprefix(_PREFIX).split(":")
        tenant, workflow_type = (unquote(part, errors="strict") for part in parts)
    except ValueError:
        return None
    return (tenant, workflow_type) if model_key(tenant, workflow_type).encode() == key else None
