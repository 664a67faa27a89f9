"""Watches the outbox, and the statement of the worker, on a connection of its own."""

from __future__ import annotations

from collections.abc import Mapping

from agents.memory.large_runs import LargeRuns
from memory.store.outbox import OutboxLag, outbox_lag, statement_age_s
from sinks.connections import connect_postgres


class OutboxWatch:
    """The lag of the memory worker, as `agents.health.reporter` asks for that of a log."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.large = LargeRuns()
        """The runs that the worker postpones; their rows are not its lag."""
        self.backend = 0
        """The process of Postgres that executes the worker's statements; 0: none."""
        self.statement_s = 0.0
        """Seconds for which it has executed one, or held it at a lock, when last asked."""
        self._lag = OutboxLag(0, 0.0)

    @property
    def oldest_s(self) -> float:
        """Seconds for which the oldest row has waited, when last asked."""
        return self._lag.oldest_s

    async def ask(self) -> None:
        """Ask Postgres. Raises its errors."""
        async with await connect_postgres(self._dsn) as connection:
            self._lag = await outbox_lag(connection, self.large.postponed())
            self.statement_s = await statement_age_s(connection, self.backend)

    def lag(self, done: Mapping[int, int]) -> dict[int, int]:
        """Return the waiting rows, as those of partition 0."""
        return dict.fromkeys(done, self._lag.rows)

    def held_back(self, _done: Mapping[int, int]) -> dict[int, int]:
        """Return nothing."""
        return {}

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""
