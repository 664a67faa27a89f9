"""Asks Postgres and Redis for their versions. Read-only."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from psycopg import AsyncConnection

from console.inspection.error_text import short_error
from console.inspection.target import InspectionTarget
from headstart.scrubbing.masking import masked_address
from sinks.connections import connect_postgres, postgres_address, redis_client


@dataclass(frozen=True)
class ServiceAnswer:
    """A service's answer. `error`: why there is none, in one line without passwords."""

    service: str
    address: str
    version: str | None = None
    error: str | None = None
    took_ms: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it answered."""
        return self.error is None


async def answer_of(
    service: str, address: str, ask: Callable[[], Awaitable[str | None]]
) -> ServiceAnswer:
    """Ask a service for its version; an exception becomes the answer's error."""
    began = time.perf_counter()
    version = error = None
    try:
        version = await ask()
    except Exception as failed:  # any error means that the service is not usable
        error = short_error(failed)
    return ServiceAnswer(service, address, version, error, (time.perf_counter() - began) * 1e3)


class AskedPostgres:
    """A connection to Postgres, opened by the first query."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._connection: AsyncConnection[Any] | None = None

    async def connection(self) -> AsyncConnection[Any]:
        """Return the connection. Raises `PostgresUnreachable`."""
        if self._connection is None:
            self._connection = await connect_postgres(self.dsn)
        return self._connection

    async def answer(self) -> ServiceAnswer:
        """Ask for the version."""
        return await answer_of("postgres", postgres_address(self.dsn), self._version)

    async def _version(self) -> str | None:
        connection = await self.connection()
        row = await (await connection.execute("SHOW server_version")).fetchone()
        return str(row[0]) if row else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await self._connection.close()


async def ask_redis(target: InspectionTarget) -> ServiceAnswer:
    """Ask Redis."""

    async def ask() -> str | None:
        async with redis_client(target.redis) as client:
            server = await client.info("server")
        return str(server.get("valkey_version") or server.get("redis_version"))

    return await answer_of("redis", masked_address(target.redis), ask)
