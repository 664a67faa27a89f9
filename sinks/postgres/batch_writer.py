"""Writes batches to Postgres exactly once, and isolates rejected rows.

One transaction per batch: COPY a block of text into the table. If that fails, COPY it into a
temporary stage and insert the new rows from there (existing rows are kept). Then drop rows that are
packed already, pass rejected rows to the caller, advance the consumer's offsets and commit.
Subclasses define the table and how a record becomes a line; an outbox, if they have one, is written
in the same transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor, errors

from sinks.connections import connect_postgres
from sinks.postgres.progress import require_known, stored_offsets
from sinks.postgres.statements import load_statements

_OFFSETS = load_statements("offsets")

_BAD_ROW: Final = (
    psycopg.DataError,  # text that is not a UUID, a NUL in JSON, a number out of range
    psycopg.IntegrityError,  # an unknown event type, a missing value
    errors.ProgramLimitExceeded,  # too large for an index or for jsonb
    errors.StatementTooComplex,  # nested too deep
)
"""Errors caused by a row; any other error fails the batch."""


STAGED_AFTER: Final = 16
"""Batches that use the stage directly after one that the table rejected: with a producer that sends
everything twice, each attempt on the table would double the cost."""


MOST_SEARCHED: Final = 1_500
"""Largest batch that is searched for bad lines: each takes two attempts of a millisecond."""


class TooManyRejectedRows(ValueError):
    """A batch of more than `MOST_SEARCHED` lines has bad ones; nothing is stored. Split it."""


class RejectedRow(NamedTuple):
    """A line that cannot be stored: its position in the batch, from 0, and the reason."""

    position: int
    reason: str


OnRefused = Callable[[Sequence[RejectedRow]], Awaitable[None]]
First = Callable[[AsyncConnection[Any]], Awaitable[Collection[int] | None]]
"""Called at the beginning of the transaction; may return the positions of lines to leave out."""
Last = Callable[[AsyncConnection[Any]], Awaitable[None]]
"""Called when the lines are stored."""


class Hooks(NamedTuple):
    """What else is done in the transaction of a batch, before and after its lines."""

    first: First | None = None
    last: Last | None = None


NO_HOOKS: Final = Hooks()


class BatchWriter:
    """Stores batches of COPY text lines in one table (see the module's docstring).

    One connection, one batch at a time: further calls of `store` wait. When the connection breaks,
    psycopg's error is raised and nothing of the batch is stored; open a new sink.
    """

    consumer: ClassVar[str]
    """Name under which offsets are stored."""
    sql: ClassVar[Mapping[str, bytes]]
    """Statements `create_stage`, `copy_stage`, `clear_stage` and `merge_stage`; optionally
    `copy_table` to COPY into the table directly, `copy_outbox`, and `drop_packed`."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._one_at_a_time = asyncio.Lock()
        self._staged_for = 0

    @staticmethod
    def encode(raws: Sequence[bytes], /) -> list[bytes]:
        """Return a line of COPY text for each record's JSON. Raises `ValueError`."""
        raise NotImplementedError

    async def prepared(
        self,
        _connection: AsyncConnection[Any],
        lines: Sequence[bytes],
        _touched: Sequence[bytes],
        /,
    ) -> Sequence[bytes]:
        """Return the lines as they are to be stored, of the same number and order."""
        return lines

    @staticmethod
    def touched(_lines: Sequence[bytes], /) -> list[bytes]:
        """Return the lines of the outbox that follow from stored lines; empty without an outbox."""
        return []

    @staticmethod
    def packable(_touched: Sequence[bytes], /) -> list[tuple[str, str]]:
        """Return (tenant, workflow id) of the touched runs whose events may be packed already."""
        return []

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
        """Close the connection. May be called twice."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def next_offsets(self, topic: str, epoch: int) -> dict[int, int]:
        """Return the first offset not yet stored, by partition; empty for a new epoch."""
        async with self._one_at_a_time:
            return await stored_offsets(self._connection, self.consumer, topic, epoch)

    async def store(
        self,
        lines: Sequence[bytes],
        offsets: Mapping[int, int],
        *,
        topic: str,
        epoch: int,
        on_refused: OnRefused,
        known: Mapping[int, int] = MappingProxyType({}),
        hooks: Hooks = NO_HOOKS,
        touched: Sequence[bytes] | None = None,
    ) -> int:
        """Store `lines` and `offsets` (next offset by partition) in one transaction.

        Returns the number of new rows. `hooks` are awaited with the connection. `on_refused` is
        awaited before the commit with the rejected rows in order, if there are any. If one of them
        raises, nothing is stored.
        `known`: the offsets by partition that an earlier transaction has stored. `touched`: what
        the method of that name returns for `lines`, computed before the transaction. Raises
        `TooManyRejectedRows`, and `TransactionsLost` if Postgres has lower offsets than `known`.
        """
        refused: list[RejectedRow] = []
        async with self._one_at_a_time, self._connection.transaction():
            left_out = await hooks.first(self._connection) if hooks.first is not None else None
            kept = None
            if left_out:
                kept = [place for place in range(len(lines)) if place not in left_out]
                lines, touched = [lines[place] for place in kept], None
            if touched is None:
                touched = self.touched(lines)
            lines = await self.prepared(self._connection, lines, touched)
            inserted = await self._insert_new(lines, refused)
            if inserted:
                if refused:
                    touched = self._touched_by_stored(lines, refused)
                inserted -= await self._note_touched(touched, inserted)
            if refused and kept is not None:
                refused = [each._replace(position=kept[each.position]) for each in refused]
            if refused:
                await on_refused(refused)
            if hooks.last is not None:
                await hooks.last(self._connection)
            await self._advance(offsets, topic, epoch, known)
        return inserted

    async def _insert_new(self, lines: Sequence[bytes], refused: list[RejectedRow]) -> int:
        """Store the valid lines; return how many rows are new."""
        if lines and "copy_table" in self.sql:
            if self._staged_for:
                self._staged_for -= 1
            elif await self._copied(lines):
                return len(lines)
            else:
                self._staged_for = STAGED_AFTER
        return await self._insert(lines, 0, refused)

    def _touched_by_stored(
        self, lines: Sequence[bytes], refused: Sequence[RejectedRow]
    ) -> Sequence[bytes]:
        left_out = {row.position for row in refused}
        return self.touched([line for at, line in enumerate(lines) if at not in left_out])

    async def _note_touched(self, touched: Sequence[bytes], inserted: int) -> int:
        """Drop rows that are stored otherwise already, and note in the outbox what is touched.

        Returns how many rows were dropped. Runs are only noted if a row of the batch stays.
        """
        if not touched:
            return 0
        dropped = 0
        if old := self.packable(touched):
            given = {
                "tenants": [each[0] for each in old],
                "workflow_ids": [each[1] for each in old],
            }
            row = await (await self._connection.execute(self.sql["drop_packed"], given)).fetchone()
            dropped = int(row[0]) if row else 0
        if dropped < inserted and "copy_outbox" in self.sql:
            async with self._connection.cursor() as cursor:
                await _copy(cursor, self.sql["copy_outbox"], touched)
        return dropped

    async def _copied(self, lines: Sequence[bytes]) -> bool:
        """COPY `lines` into the table; return False if one is rejected or exists already."""
        try:
            async with self._connection.transaction(), self._connection.cursor() as cursor:
                await _copy(cursor, self.sql["copy_table"], lines)
        except _BAD_ROW:
            return False
        return True

    async def _insert(self, lines: Sequence[bytes], at: int, refused: list[RejectedRow]) -> int:
        """Insert `lines` through the empty stage; return how many rows are new.

        Bad lines are found by bisection, each attempt in its own savepoint, and added to `refused`.
        `at`: position of the first line in its batch.
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

    async def _advance(
        self, offsets: Mapping[int, int], topic: str, epoch: int, known: Mapping[int, int]
    ) -> None:
        if offsets:
            reached = {
                "consumer": self.consumer,
                "topic": topic,
                "epoch": epoch,
                "partitions": list(offsets),
                "next_offsets": list(offsets.values()),
            }
            cursor = await self._connection.execute(_OFFSETS["advance"], reached)
            before = dict(await cursor.fetchall())
            require_known(before, {each: at for each, at in known.items() if each in offsets})


async def _copy(cursor: AsyncCursor[Any], statement: bytes, lines: Sequence[bytes]) -> None:
    async with cursor.copy(statement) as copy:
        await copy.write(b"".join(lines))


def _reason(error: psycopg.Error) -> str:
    """Return the error's message and, if it has one, its detail."""
    message = error.diag.message_primary or str(error)
    detail = error.diag.message_detail
    return " ".join(f"{message}: {detail}".split())[:500] if detail else message[:500]
