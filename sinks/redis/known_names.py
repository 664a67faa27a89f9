"""Which tenants and workflow types have something learned in Redis: thresholds or a model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from headstart.thresholds.cache_entries import REPAIRED_FIELD
from headstart.thresholds.overrides import OVERRIDES_FIELD
from sinks.connections import redis_client
from sinks.redis.masters import scan_keys
from sinks.redis.models import MODEL_KEYS, model_names
from sinks.redis.queries import THRESHOLD_KEYS
from sinks.redis.stored_fields import owner_of

_KEYS_AT_ONCE: Final = 1000


async def known_names(redis_url: str) -> set[tuple[str, str]]:
    """Return (tenant, workflow type) of each hash of thresholds and each shared model.

    The workflow type "" is that of a tenant's default. Raises `RedisUnreachable`.
    """
    async with redis_client(redis_url) as client:
        scanned = scan_keys(client, THRESHOLD_KEYS, "hash")
        owners = {owner_of(key) async for key in _serving(client, scanned)}
        models = scan_keys(client, MODEL_KEYS, "hash")
        owners |= {model_names(key) async for key in models}
    return {each for each in owners if each is not None}


async def _serving(client: Any, keys: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the hashes that hold more than overrides and a repair number."""
    waiting: list[bytes] = []
    async for key in keys:
        waiting.append(key)
        if len(waiting) == _KEYS_AT_ONCE:
            for each in await _with_fields(client, waiting):
                yield each
            waiting.clear()
    for each in await _with_fields(client, waiting):
        yield each


async def _with_fields(client: Any, keys: list[bytes]) -> list[bytes]:
    async with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hlen(key).hexists(key, REPAIRED_FIELD).hexists(key, OVERRIDES_FIELD)
        held = await pipeline.execute()
    counts = zip(keys, held[::3], held[1::3], held[2::3], strict=True)
    return [key for key, fields, number, overrides in counts if fields > number + overrides]
