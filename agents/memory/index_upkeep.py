"""Maintains the indexes of vectors after the daily retention, beside the worker's other work.

To rebuild an index takes minutes for a large partition, and waits for older transactions, so it
has a connection and a task of its own. If the worker ends meanwhile, the next day does it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import psycopg
import structlog

from agents.memory.busy_rows import reason_of
from sinks.connections import POSTGRES_LOST, connect_postgres
from sinks.postgres.reclaiming import LEAST_DEAD, maintain_indexes

log = structlog.get_logger()

SETTLE_S: Final = 15.0
"""Time from the last deletion until Postgres' statistics have it."""
_LIMITED: Final = "SET statement_timeout = '1h'"
"""A build may wait for a transaction that never ends."""


class IndexUpkeep:
    """Rebuilds or vacuums indexes of which many vectors are deleted, once for each `begin`."""

    def __init__(self, dsn: str, settle_s: float = SETTLE_S, least: int = LEAST_DEAD) -> None:
        """`least`: deleted rows of a partition from which its index is maintained."""
        self.done = 0
        """How often it has come to its end since the worker began."""
        self._dsn, self._settle_s, self._least = dsn, settle_s, least
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, unless it is under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._maintain())

    async def close(self) -> None:
        """End what is under way: an index that is not finished is dropped by the next build."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _maintain(self) -> None:
        await asyncio.sleep(self._settle_s)
        try:
            async with await connect_postgres(self._dsn) as connection:
                await connection.execute(_LIMITED)
                found = await maintain_indexes(connection, _note, self._least)
        except (*POSTGRES_LOST, psycopg.Error) as error:
            log.warning("memory.indexes_postponed", reason=reason_of(error))
            return
        for each, upkeep in found:
            log.info(
                "memory.index_maintained", table=each.table, by=upkeep, deleted=each.dead,
                live=each.live,
            )  # fmt: skip
        self.done += 1


def _note(line: str) -> None:
    if line.startswith("warning: "):
        log.warning("memory.index_left", reason=line.removeprefix("warning: "))
