"""Creates the daily partitions of the episodes table ahead of time."""

from __future__ import annotations

import asyncio
import datetime
from typing import Final

import psycopg
import structlog

from agents.storage.transactions import reason
from sinks.connections import PostgresUnreachable, connect_postgres
from sinks.postgres.partitions import ensure_partitions

log = structlog.get_logger()

INTERVAL_S: Final = 3_600.0


async def create_partitions(postgres: str) -> None:
    """Create today's and the next ones. Raises `PostgresUnreachable` and psycopg's `Error`."""
    async with await connect_postgres(postgres) as connection:
        await ensure_partitions(connection, datetime.datetime.now(datetime.UTC).date())


async def keep_partitions(postgres: str) -> None:
    """Create partitions every hour, never while a batch is being stored, until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        try:
            await create_partitions(postgres)
        except (PostgresUnreachable, psycopg.Error) as error:
            # Their events go to the default partition until the next round.
            log.warning("sink.daily_partitions_failed", error=reason(error, postgres))
