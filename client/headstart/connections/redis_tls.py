"""Has redis-py's asyncio connections read their TLS files again whenever they connect.

Its other connections do so anyway; those of asyncio keep a context for as long as the object lives,
which connects again after each interruption.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from redis.asyncio.connection import SSLConnection


class _ReadsFilesAgain:
    """Mixin of an asyncio connection with TLS."""

    ssl_context: Any

    def _connection_arguments(self) -> Mapping[str, Any]:
        """Return what asyncio connects by; redis-py calls it for each connection."""
        self.ssl_context.context = None
        found: Mapping[str, Any] = super()._connection_arguments()  # type: ignore[misc]
        return found


@cache
def reading_files_again(kind: Any) -> Any:
    """Return a class of asyncio connections that reads its TLS files for each connection.

    A class without TLS is returned unchanged.
    """
    if not issubclass(kind, SSLConnection):
        return kind
    return type(kind.__name__, (_ReadsFilesAgain, kind), {})


def read_files_again(pool: Any) -> None:
    """Have a pool of asyncio connections make such as read their TLS files for each connection."""
    pool.connection_class = reading_files_again(pool.connection_class)
