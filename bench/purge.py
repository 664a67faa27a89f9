"""Isolation and erasure of the memory: what crosses between tenants.

`crossed`: results that hold a row of the other tenant, of random operations of two tenants whose
runs, queries and contexts are equal, through every read path and over connections that both share.

`purge_100000_s`, `canary_bytes`: seconds to erase a user of 100,000 cases from the database, and
bytes of the user's text that its rows hold afterwards; `purge_packed_100000_s`,
`packed_canary_bytes`: the same of cases whose events are packed.

`storage_packed_ratio`, `storage_merged_ratio`: bytes on disk of events, episodes and vectors, as
multiples of the events' JSON, of a workload with repetition.

`vacuum_s`, `rebuild_s`, and CPU: what it takes to free 15 % of a partition's vectors, by VACUUM and
by a new index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from psycopg.conninfo import make_conninfo

from bench.support.index_rebuilding import measure_rebuilding
from bench.support.interleaving import interleave
from bench.support.measuring import echo
from bench.support.merged_storage import measure_merging
from bench.support.purge_measuring import measure_packed_purge, measure_purge
from deploy.local import Stack, StackConfig
from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate


async def _crossing(dsn: str, operations: int) -> dict[str, Any]:
    found = await interleave(dsn, operations)
    echo(f"crossing: {found}")
    silent = sorted(name for name, count in found.answered.items() if not count)
    return {
        "operations": found.operations,
        "crossed": found.crossed,
        "crossed_examples": found.examples,
        "silent_paths": silent,
    }


PARTS: Final[dict[str, Callable[[str, int], Awaitable[dict[str, Any]]]]] = {
    "crossing": _crossing,
    "erasure": lambda dsn, _operations: measure_purge(dsn),
    "packed_erasure": lambda dsn, _operations: measure_packed_purge(dsn),
    "storage": lambda dsn, _operations: measure_merging(dsn),
    "indexes": lambda dsn, _operations: measure_rebuilding(dsn),
}
"""Each gets an empty, migrated database of its own and the number of operations."""


def run(operations: int = 100_000, part: str | None = None) -> dict[str, Any]:
    """Return the figures of all parts, or of one; no broker is used.

    Raises `ValueError` for a part that there is not.
    """
    if part not in (None, *PARTS):
        raise ValueError(f"{part!r} is no part; it is one of: {', '.join(PARTS)}")
    with (
        TemporaryDirectory(prefix="headstart-bench-") as folder,
        Stack(StackConfig(data=Path(folder) / "stack", kafka="embedded")) as stack,
    ):
        return asyncio.run(_measured(stack.addresses.postgres, operations, part))


async def _measured(dsn: str, operations: int, part: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, measure in PARTS.items():
        if part not in (None, name):
            continue
        async with await connect_postgres(dsn) as connection:
            await connection.execute(f"CREATE DATABASE bench_{name}".encode())
        own = make_conninfo(dsn, dbname=f"bench_{name}")
        await migrate(own)
        found |= await measure(own, operations)
    return {
        **found,
        "framing": "crossing: two tenants of 100 equal runs, 8 operations at a time, a tenth of "
        "them writes, searches as headstart_reader over 3 connections",
    }
