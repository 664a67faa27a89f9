"""Opens the memory for the commands that retrieve from it: `search` and `context`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import typer

if TYPE_CHECKING:
    from memory.embedding.interface import Embedder
    from memory.retrieval.client import Memory
    from memory.retrieval.result import Retrieval
    from settings import Settings

_TIMEOUT_S: Final = 30.0
_EMBEDDING_TIMEOUT_S: Final = 15.0
"""A person waits longer than an agent: an endpoint may answer after seconds."""


def query_text(given: str) -> str:
    """Return the query of a command line; `-`: all of standard input, without the last line end."""
    if given != "-":
        return given
    return sys.stdin.buffer.read().decode(errors="replace").removesuffix("\n")


@contextmanager
def opened_memory(
    settings: Settings, tenant: str, closed: Callable[[Retrieval], None]
) -> Iterator[Memory]:
    """Open the memory of a tenant; searches are not logged.

    `closed`: called with an answer without episodes, which has the reason, if Postgres cannot be
    searched, before that error is raised.
    Within it, a request that makes no sense is wrong usage of the command (`BadParameter`). Raises
    `PostgresUnreachable`, `NotMigrated` and `PermissionMissing`, which a command reports and an
    executor must not.
    """
    from memory.retrieval.client import Memory
    from memory.retrieval.request import InvalidQuery
    from memory.retrieval.result import Retrieval
    from sinks.connections import PostgresUnreachable
    from sinks.postgres.permissions import PermissionMissing
    from sinks.postgres.reading import NotMigrated

    try:
        asyncio.run(_require_postgres(settings.postgres))
    except (PostgresUnreachable, NotMigrated, PermissionMissing) as error:
        closed(Retrieval(str(uuid4()), (), (str(error),)))
        raise
    with Memory(
        settings.postgres,
        tenant=tenant,
        embedders=_configured_embedders(settings),
        timeout_s=_TIMEOUT_S,
        embedding_timeout_s=_EMBEDDING_TIMEOUT_S,
        journal=False,
    ) as memory:
        try:
            yield memory
        except InvalidQuery as error:
            raise typer.BadParameter(str(error)) from error


def _configured_embedders(settings: Settings) -> list[Embedder]:
    """Return the configured model, and the default one, whose vectors may be the older ones."""
    from memory.embedding.choice import EmbeddingConfig, make_embedder
    from settings import embedding_of

    configured = make_embedder(embedding_of(settings))
    return [configured, make_embedder(EmbeddingConfig())]


async def _require_postgres(dsn: str) -> None:
    from sinks.postgres.reading import reading_postgres

    async with reading_postgres(dsn):
        pass
