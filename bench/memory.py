"""The memory: what keeping episodes costs, and how well and how fast they are retrieved.

Storing: noting, assembling, embedding and storing runs, and what they take on disk. Retrieval:
requests of tenants of every size, through the service, as the role that sees one tenant. CPU is
that of the Postgres backend, and of this process where it does the worker's part: other work on the
machine changes it less than times. Recall is tie-aware: a result counts if it is as near as the
tenth nearest.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from psycopg.conninfo import make_conninfo

from bench.support.memory_storing import measure_storing
from bench.support.retrieval_measuring import measure_retrieval
from deploy.local import Stack, StackConfig
from memory.embedding.wordllama import WordLlamaEmbedder
from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate

EVENTS_OF_A_RUN: Final = 10
PARTS: Final = ("storing", "retrieval")


def run(events: int = 1_000_000, part: str | None = None) -> dict[str, Any]:
    """Return the figures for `events` events, about, of a tenth as many runs; no broker.

    `part`: `storing` or `retrieval` alone. Raises `ValueError` for another.
    """
    if part not in (None, *PARTS):
        raise ValueError(f"{part!r} is no part; it is one of: {', '.join(PARTS)}")
    with (
        TemporaryDirectory(prefix="headstart-bench-") as folder,
        Stack(StackConfig(data=Path(folder) / "stack", kafka="embedded")) as stack,
    ):
        return asyncio.run(_measured(stack.addresses.postgres, events // EVENTS_OF_A_RUN, part))


async def _measured(dsn: str, runs: int, part: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in PARTS:
        if part not in (None, name):
            continue
        async with await connect_postgres(dsn) as connection:
            await connection.execute(f"CREATE DATABASE bench_{name}".encode())
        own = make_conninfo(dsn, dbname=f"bench_{name}")
        await migrate(own)
        if name == "storing":
            found |= await measure_storing(own, runs)
        else:
            found |= await measure_retrieval(own, runs, WordLlamaEmbedder())
    return {
        **found,
        "framing": "200 tenants of Zipf sizes; storing: batches of 4,000 events of 1,500 open "
        "runs; worker: one process and its backend, vectors and HNSW included; retrieval: one "
        "connection as headstart_reader, each group of tenants, by rank, has equally many "
        "requests, vectors were indexed after they were loaded",
    }
