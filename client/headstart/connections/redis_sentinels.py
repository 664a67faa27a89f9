"""Sentinels, and pools of connections to the primary that they name, as redis-py has them.

With two differences. If no Sentinel names the primary, the error has what each of them answered.
And a connection asks them whenever it connects: redis-py's, when it sends a command after it was
closed, connects to the server of before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from redis import sentinel
from redis.asyncio import sentinel as async_sentinel
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.connection import SSLConnection
from redis.exceptions import RedisError

from headstart.connections.redis_failures import PrimaryNotFound

Server = tuple[str, int]


class Sentinels(sentinel.Sentinel):
    """redis-py's, for threads."""

    def discover_master(self, service_name: str) -> Server:
        """Return host and port of the primary. Raises `PrimaryNotFound`."""
        errors: dict[str, Exception] = {}
        for asked in self.sentinels:
            try:
                known = asked.sentinel_masters()
            except (RedisError, OSError) as error:
                errors[_address(asked)] = error
                continue
            if found := _primary(self, known, service_name):
                self.sentinels = _first(asked, self.sentinels)
                return found
        raise _not_found(self, service_name, errors)


class AsyncSentinels(async_sentinel.Sentinel):
    """The same for asyncio."""

    def __init__(
        self, sentinels: Sequence[Server], *, answer_s: float | None = None, **more: Any
    ) -> None:
        """`answer_s`: most seconds for one of them; None: the time limits of connections."""
        own: Any = super()
        own.__init__(sentinels, **more)
        self._answer_s = answer_s

    async def discover_master(self, service_name: str) -> Server:
        """Return host and port of the primary. Raises `PrimaryNotFound`."""
        errors: dict[str, Exception] = {}
        for asked in self.sentinels:
            try:
                async with asyncio.timeout(self._answer_s):
                    known = await asked.sentinel_masters()
            except (RedisError, OSError) as error:
                errors[_address(asked)] = error
                continue
            if found := _primary(self, known, service_name):
                self.sentinels = _first(asked, self.sentinels)
                return found
        raise _not_found(self, service_name, errors)


class _Connection(sentinel.SentinelManagedConnection):
    """A connection to the primary, for threads."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send a command; connect before if necessary."""
        own: Any = super()  # without type hints in redis-py, as all below
        if not self.is_connected:
            own.connect()
        own.send_packed_command(command, check_health)


class _TlsConnection(_Connection, SSLConnection):
    """The same over TLS."""


class SentinelPool(sentinel.SentinelConnectionPool):
    """A pool for threads. Also closes its connections to Sentinels when it is closed."""

    def __init__(self, name: str, asked: Sentinels, *, ssl: bool = False, **options: Any) -> None:
        own: Any = super()
        own.__init__(
            name, asked, connection_class=_TlsConnection if ssl else _Connection, **options
        )

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close all connections, those in use only if wanted."""
        super().disconnect(inuse_connections)
        if inuse_connections:
            for each in self.sentinel_manager.sentinels:
                each.close()


class _AsyncConnection(async_sentinel.SentinelManagedConnection):
    """A connection to the primary, for asyncio."""

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send a command; connect before if necessary."""
        own: Any = super()
        if not self.is_connected:
            await own.connect()
        await own.send_packed_command(command, check_health)


class _AsyncTlsConnection(_AsyncConnection, AsyncSSLConnection):
    """The same over TLS."""


class AsyncSentinelPool(async_sentinel.SentinelConnectionPool):
    """A pool for asyncio. Also closes its connections to Sentinels when it is closed."""

    def __init__(
        self, name: str, asked: AsyncSentinels, *, ssl: bool = False, **options: Any
    ) -> None:
        kind = _AsyncTlsConnection if ssl else _AsyncConnection
        own: Any = super()
        own.__init__(name, asked, connection_class=kind, **options)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close all connections, those in use only if wanted."""
        closing = [super().disconnect(inuse_connections)]
        if inuse_connections:
            closing += [each.aclose() for each in self.sentinel_manager.sentinels]
        await asyncio.gather(*closing)  # at the same time: one may take long, or fail


def _first(answered: Any, sentinels: Sequence[Any]) -> list[Any]:
    """Return the Sentinels with the one that answered first, as a new list: others may read it."""
    return [answered, *(each for each in sentinels if each is not answered)]


def _primary(asking: Any, known: Any, name: str) -> Server | None:
    """Return the primary that a Sentinel names; None if it does not, or takes it for down."""
    state = known.get(name)
    if not state or not asking.check_master_state(state, name):
        return None
    return str(state["ip"]), int(state["port"])


def _not_found(asked: Any, name: str, errors: Mapping[str, Exception]) -> PrimaryNotFound:
    return PrimaryNotFound(name, errors, answered=len(errors) < len(asked.sentinels))


def _address(client: Any) -> str:
    given = client.connection_pool.connection_kwargs
    return f"{given['host']}:{given['port']}"
