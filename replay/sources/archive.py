"""The archive in Postgres as a source, for events that the topic's retention has deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from processing.records.batch import RecordBatch
from replay.predictions.notes import Notes
from replay.sources.base import NothingThere, ReadOptions, pulled
from replay.sources.files import SortedFile
from sinks.connections import postgres_address
from sinks.postgres.archive import archived_count, archived_events, span
from sinks.postgres.reading import reading_postgres


@dataclass(frozen=True)
class ArchiveSource:
    """`episodic_events` in the order of the events' own times, as one partition.

    What was sent twice is stored once, and dead letters are not stored. The order of events of one
    timestamp is lost.
    """

    postgres: str
    reading: ReadOptions
    live = True

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"the archive at {postgres_address(self.postgres)}"

    def _wanted(self) -> dict[str, Any]:
        part, chosen = self.reading.range, self.reading.chosen
        return span(part.since, part.until, chosen.tenant, chosen.workflow_type)

    def log(self) -> tuple[int, int]:
        """Return (0, 1): the archive spans epochs, and is read as one partition."""
        return 0, 1

    def units(self) -> list[int]:
        """Return the one unit. Raises `PostgresUnreachable`, `NotMigrated`, `NothingThere`."""
        if not asyncio.run(self._count()):
            raise NothingThere(f"{self.name} holds no events in the range")
        return [0]

    async def _count(self) -> int:
        async with reading_postgres(self.postgres) as connection:
            return await archived_count(connection, self._wanted())

    def batches(self, unit: int, notes: Notes) -> Iterator[tuple[RecordBatch, float]]:  # noqa: ARG002
        """Yield the events as records."""
        gathered, read = SortedFile(), 0
        with asyncio.Runner() as runner:
            count = runner.run(self._count())
            for some in pulled(runner, self._events()):
                for event in some:
                    gathered.add(orjson.dumps(event), event["timestamp"])
                read += len(some)
                yield gathered.taken(), read / max(1, count)

    async def _events(self) -> AsyncIterator[list[dict[str, Any]]]:
        async with reading_postgres(self.postgres) as connection:
            async for some in archived_events(connection, self._wanted()):
                yield some
