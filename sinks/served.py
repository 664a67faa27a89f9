"""What Redis serves, listed. Reading one context's threshold is the client's (`Thresholds`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import orjson
from redis.exceptions import RedisError

from headstart.contexts import redis_key
from sinks.connections import RedisUnreachable, connect_redis

_PATTERN = "headstart:thresholds:*"


async def served_value(
    redis_url: str, tenant: str, workflow_type: str, path: str
) -> dict[str, Any] | None:
    """Return what is served of one context; None where nothing is. Raises `RedisUnreachable`."""
    client: Any = connect_redis(redis_url)
    try:
        value = await client.hget(redis_key(tenant, workflow_type), path)
    except (RedisError, OSError) as error:
        raise RedisUnreachable(redis_url, error) from error
    finally:
        await client.aclose()
    return None if value is None else orjson.loads(value)


async def served_thresholds(
    redis_url: str, tenant: str | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield every served threshold, of one tenant where named. Raises `RedisUnreachable`."""
    client: Any = connect_redis(redis_url)
    try:
        async for key in client.scan_iter(_PATTERN, count=500):
            owner, workflow_type = key.decode().split(":")[2:4]
            if tenant is not None and unquote(owner) != tenant:
                continue
            for path, value in (await client.hgetall(key)).items():
                served = orjson.loads(value)
                if served.get("deleted"):
                    continue
                yield {
                    "tenant": unquote(owner),
                    "workflow_type": unquote(workflow_type),
                    "path": path.decode(),
                    **served,
                }
    except (RedisError, OSError) as error:
        raise RedisUnreachable(redis_url, error) from error
    finally:
        await client.aclose()
