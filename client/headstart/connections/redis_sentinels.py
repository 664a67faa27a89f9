"""Pools of connections to the primary that Sentinels name, as redis-py has them.

With one difference: a connection asks the Sentinels whenever it connects. redis-py's, when it sends
a command after it was closed, connects to the server of before.
"""

from __future__ import annotations

from typing import Any

from redis import sentinel
from redis.asyncio import sentinel as async_sentinel
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.connection import SSLConnection


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

    def __init__(
        self, name: str, asked: sentinel.Sentinel, *, ssl: bool = False, **options: Any
    ) -> None:
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
        self, name: str, asked: async_sentinel.Sentinel, *, ssl: bool = False, **options: Any
    ) -> None:
        kind = _AsyncTlsConnection if ssl else _AsyncConnection
        own: Any = super()
        own.__init__(name, asked, connection_class=kind, **options)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close all connections, those in use only if wanted."""
        await super().disconnect(inuse_connections)
        if inuse_connections:
            for each in self.sentinel_manager.sentinels:
                await each.aclose()
