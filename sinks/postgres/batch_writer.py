"""How a batch gets into Postgres: exactly once, fast, and past its bad rows.

One transaction per batch: COPY a block of text into the table; where that is refused, into a
temporary stage and from there what is new (rows already there are left alone), let the caller
deal with refused rows, advance the consumer's offsets, commit. Which table, and how a record
becomes a line, is the subclass's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor, errors

from sinks.connections import connect_postgres
from sinks.postgres.statements import load_statements

_OFFSETS = load_statements("offsets")

_BAD_ROW: Final = (
    psycopg.DataError,  # text that is no uuid, a NUL in JSON, a number out of range
    psycopg.IntegrityError,  # an unknown event type, a missing value
    errors.ProgramLimitExceeded,  # too large for an index or for jsonb
    errors.StatementTooComplex,  # nested too deep
)
"""What Postgres raises because of a row; anything else ends the batch."""


STAGED_AFTER: Final = 16
"""Batches that go by the stage at once after one that the table did not take: whoever sends
everything twice makes each try cost as much again."""


MOST_SEARCHED: Final = 1_500
"""Lines of a batch in which bad ones are looked for: each takes two tries of a millisecond."""


class TooManyRejectedRows(ValueError):
    """There are bad lines in more than `MOST_SEARCHED`; nothing is stored. Store them in pieces."""


class RejectedRow(NamedTuple):
    """A line that cannot be stored: its place in the batch, from 0, and why."""

    position: int
    reason: str


OnRefused = Callable[[Sequence[RejectedRow]], Awaitable[None]]
First = Callable[[AsyncConnection[Any]], Awaitable[None]]
"""What else a transaction does, before anything is stored in it."""


class Sink(Protocol):
    """What an agent needs of a sink, whichever table is behind it."""

    async def next_offsets(self, topic: str, epoch: int) -> dict[int, int]:
        """Return the first offset not yet stored, by partition."""
        ...

    async def store(
        self,
        lines: Sequence[bytes],
        offsets: Mapping[int, int],
        *,
        topic: str,
        epoch: int,
        on_refused: OnRefused,
        first: First | None = None,
    ) -> int:
        """Store lines of COPY text and the offsets reached; return how many rows are new.

        Raises `TooManyRejectedRows`.
        """
        ...


class BatchWriter:
    """Stores batches of lines of COPY text in one table; see the module for how.

    One connection, one batch at a time: further calls of `store` wait. When the connection breaks,
    psycopg's error reaches the caller and nothing of the batch is stored; open a new sink.
    """

    consumer: ClassVar[str]
    """Under which name offsets are kept."""
    sql: ClassVar[Mapping[str, bytes]]
    """Statements `create_stage`, `copy_stage`, `clear_stage` and `merge_stage`; `copy_table` where
    lines may go there straight."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._one_at_a_time = asyncio.Lock()
        self._staged_for = 0

    @staticmethod
    def encode(raws: Sequence[bytes], /) -> list[bytes]:
        """Return records' JSON as a line of COPY text each. Raises `ValueError` if one has none."""
        raise NotImplementedError

    @classmethod
    async def open(cls, dsn: str) -> Self:
        """Connect to a migrated database. Raises `PostgresUnreachable`."""
        connection = await connect_postgres(dsn)
        try:
            await connection.execute(cls.sql["create_stage"])
        except BaseException:
            await connection.close()
            raise
        return cls(connection)

    async def close(self) -> None:
        """Close the connection. Closing twice is fine."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def next_offsets(self, topic: str, epoch: int) -> dict[int, int]:
        """Return the first offset not yet stored, by partition; empty for a new epoch."""
        of = {"consumer": self.consumer, "topic": topic, "epoch": epoch}
        async with self._one_at_a_time:
            cursor = await self._connection.execute(_OFFSETS["next_offsets"], of)
            return dict(await cursor.fetchall())

    async def store(
        self,
        lines: Sequence[bytes],
        offsets: Mapping[int, int],
        *,
        topic: str,
        epoch: int,
        on_refused: OnRefused,
        first: First | None = None,
    ) -> int:
        """Store `lines` and `offsets` (next offset by partition) in one transaction.

        Returns how many rows are new. `on_refused` is awaited before the commit, and only if
        there are refusals, in the order of the batch; if it raises, nothing is stored. `first` is
        awaited with the connection as the transaction begins, and the same holds for it. Raises
        `TooManyRejectedRows`.
        """
        refused: list[RejectedRow] = []
        async with self._one_at_a_time, self._connection.transaction():
            if first is not None:
                await first(self._connection)
            inserted = await self._take(lines, refused)
            if refused:
                await on_refused(refused)
            await self._advance(offsets, topic, epoch)
        return inserted

    async def _take(self, lines: Sequence[bytes], refused: list[RejectedRow]) -> int:
        """Store what can be stored; return how many rows are new."""
        if lines and "copy_table" in self.sql:
            if self._staged_for:
                self._staged_for -= 1
            elif await self._copied(lines):
                return len(lines)
            else:
                self._staged_for = STAGED_AFTER
        return await self._insert(lines, 0, refused)

    async def _copied(self, lines: Sequence[bytes]) -> bool:
        """Return whether the table took `lines` as they are, all of them new."""
        try:
            async with self._connection.transaction(), self._connection.cursor() as cursor:
                await _copy(cursor, self.sql["copy_table"], lines)
        except _BAD_ROW:
            return False
        return True

    async def _insert(self, lines: Sequence[bytes], at: int, refused: list[RejectedRow]) -> int:
        """Merge `lines`, the first being number `at` of its batch; return how many rows are new.

        The stage is empty before. A bad line is found by halving, each try in its own savepoint,
        and added to `refused`.
        """
        if not lines:
            return 0
        try:
            async with self._connection.transaction():
                return await self._merge(lines)
        except _BAD_ROW as error:
            if len(lines) > MOST_SEARCHED:
                raise TooManyRejectedRows(f"{len(lines)} lines: {_reason(error)}") from error
            if len(lines) == 1:
                refused.append(RejectedRow(at, _reason(error)))
                return 0
        half = len(lines) // 2
        inserted = await self._insert(lines[:half], at, refused)
        await self._connection.execute(self.sql["clear_stage"])
        return inserted + await self._insert(lines[half:], at + half, refused)

    async def _merge(self, lines: Sequence[bytes]) -> int:
        async with self._connection.cursor() as cursor:
            await _copy(cursor, self.sql["copy_stage"], lines)
            await cursor.execute(self.sql["merge_stage"])
            return cursor.rowcount

    async def _advance(self, offsets: Mapping[int, int], topic: str, epoch: int) -> None:
        if offsets:
            reached = {
                "consumer": self.consumer,
                "topic": topic,
                "epoch": epoch,
                "partitions": list(offsets),
                "next_offsets": list(offsets.values()),
            }
            await self._connection.execute(_OFFSETS["advance"], reached)


async def _copy(cursor: AsyncCursor[Any], statement: bytes, lines: Sequence[bytes]) -> None:
    async with cursor.copy(statement) as copy:
        await copy.write(b"".join(lines))


def _reason(error: psycopg.Error) -> str:
    """Return what Postgres says of a row: its message and, where it gives one, the detail."""
    message = error.diag.message_primary or str(error)
    detail = error.diag.message_detail
    return " ".join(f"{message}: {detail}".split())[:500] if detail else message[:500]
