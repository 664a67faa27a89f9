"""What took part in a demo: versions of our packages and of the servers that answered."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from deploy.local import Addresses
from sinks.connections import connect_postgres, connect_redis

PACKAGES: Final[Sequence[str]] = ("headstart", "faust-streaming", "aiokafka", "rocksdict", "redis",
                                  "psycopg")  # fmt: skip


async def versions(addresses: Addresses) -> dict[str, str]:
    """Return versions by name. Raises `PostgresUnreachable`, `RedisUnreachable`."""
    async with await connect_postgres(addresses.postgres) as connection:
        cursor = await connection.execute("SHOW server_version")
        (postgres,) = await cursor.fetchone() or ("",)
    client = connect_redis(addresses.redis)
    try:
        found = await client.info("server")
    finally:
        await client.aclose()
    redis = found.get("valkey_version") or found.get("redis_version")
    name = "Valkey" if "valkey_version" in found else "Redis"
    return {
        "Python": platform.python_version(),
        "Postgres server": str(postgres),
        f"{name} server": str(redis),
        **{package: _installed(package) for package in PACKAGES},
    }


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout
        return "not installed"
