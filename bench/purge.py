"""Isolation and erasure of the memory: what crosses between tenants.

`crossed`: results that hold a row of the other tenant, of random operations of two tenants whose
runs, queries and contexts are equal, through every read path and over connections that both share.

`purge_100000_s`, `purge_packed_100000_s`: seconds to erase a user of 100,000 cases from the
database, and of 100,000 cases whose events are packed.

`canary_bytes`: bytes of a purged user's text that are left in these rows, and of text and name in
every place of a running system: a dump, Redis, spools, logs, exports, and the topics after
retention and compaction; `canary_bytes_of` has them by place, `canary_bytes_before` how many there
were before the purge.

`storage_packed_ratio`, `storage_merged_ratio`: bytes on disk of events, episodes and vectors, as
multiples of the events' JSON, of a workload with repetition.

`indexes`: `vacuum_s` and `rebuild_s`, and CPU, of what it takes to free shares of a partition's
vectors, by VACUUM and by a new index, by size and share.

`prune_KIND_ratio`: how many times the time for half the rows it takes to prune a tenant.
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
from bench.support.prune_measuring import measure_pruning
from bench.support.purge_measuring import measure_packed_purge, measure_purge
from bench.support.purge_places import measure_places
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
    "erasure": lambda dsn, _operations: _erasure(dsn),
    "packed_erasure": lambda dsn, _operations: _packed_erasure(dsn),
    "storage": lambda dsn, _operations: measure_merging(dsn),
    "indexes": lambda dsn, _operations: measure_rebuilding(dsn),
    "pruning": lambda dsn, _operations: measure_pruning(dsn),
}
"""Each gets an empty, migrated database of its own and the number of operations."""
PLACES: Final = "places"
"""The part with a running system of its own."""


def run(
    operations: int = 100_000, part: str | None = None, kafka: str = "apache"
) -> dict[str, Any]:
    """Return the figures of all parts, or of one. `kafka`: the broker of the part `places`.

    Raises `ValueError` for a part that there is not.
    """
    if part not in (None, PLACES, *PARTS):
        raise ValueError(f"{part!r} is no part; it is one of: {', '.join((PLACES, *PARTS))}")
    found: dict[str, Any] = {}
    if part != PLACES:
        with (
            TemporaryDirectory(prefix="headstart-bench-") as folder,
            Stack(StackConfig(data=Path(folder) / "stack", kafka="embedded")) as stack,
        ):
            found = asyncio.run(_measured(stack.addresses.postgres, operations, part))
    if part in (None, PLACES):
        found = _merged(found, measure_places(kafka))
    if places := found.get("canary_bytes_of"):
        found["canary_bytes"] = sum(places.values())
    return found


async def _erasure(dsn: str) -> dict[str, Any]:
    found = await measure_purge(dsn)
    return {**found, "canary_bytes_of": {"rows of 100,000 cases": found["canary_bytes"]}}


async def _packed_erasure(dsn: str) -> dict[str, Any]:
    found = await measure_packed_purge(dsn)
    return {**found, "canary_bytes_of": {"rows of packed cases": found["packed_canary_bytes"]}}


def _merged(some: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return figures of both; of places those of both."""
    places = some.get("canary_bytes_of", {}) | more.get("canary_bytes_of", {})
    return some | more | ({"canary_bytes_of": places} if places else {})


async def _measured(dsn: str, operations: int, part: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, measure in PARTS.items():
        if part not in (None, name):
            continue
        async with await connect_postgres(dsn) as connection:
            await connection.execute(f"CREATE DATABASE bench_{name}".encode())
        own = make_conninfo(dsn, dbname=f"bench_{name}")
        await migrate(own)
        found = _merged(found, await measure(own, operations))
    return {
        **found,
        "framing": "crossing: two tenants of 100 equal runs, 8 operations at a time, a tenth of "
        "them writes, searches as headstart_reader over 3 connections",
    }
