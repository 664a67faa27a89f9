"""Reads, advances and compares the offsets that the sinks have stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection

from sinks.postgres.statements import load_statements

_SQL = load_statements("offsets")


async def stored_offsets(
    connection: AsyncConnection[Any], consumer: str, topic: str, epoch: int
) -> dict[int, int]:
    """Return the first offset that `consumer` has not yet stored, by partition."""
    of = {"consumer": consumer, "topic": topic, "epoch": epoch}
    cursor = await connection.execute(_SQL["next_offsets"], of)
    return dict(await cursor.fetchall())


class TransactionsLost(RuntimeError):
    """Postgres lacks transactions whose commit it had confirmed: a replica without them took over.

    `stored`: the offsets that it has now, `known`: those that it had, both by partition.
    """

    def __init__(self, stored: Mapping[int, int], known: Mapping[int, int]) -> None:
        self.stored, self.known = stored, known
        which = ", ".join(
            f"{partition} ({known[partition]} before, now {stored[partition]})"
            for partition in sorted(stored)
        )
        super().__init__(
            f"Postgres lacks transactions that it had confirmed, of partitions {which}"
        )


def require_known(stored: Mapping[int, int], known: Mapping[int, int]) -> None:
    """Raise `TransactionsLost` if a stored offset is behind the one that is known to be stored."""
    behind = {
        partition: stored.get(partition, 0)
        for partition, offset in known.items()
        if stored.get(partition, 0) < offset
    }
    if behind:
        raise TransactionsLost(behind, {partition: known[partition] for partition in behind})


async def advance_offsets(
    connection: AsyncConnection[Any], consumer: str, topic: str, epoch: int, to: Mapping[int, int]
) -> None:
    """Set, by partition, the first offset that `consumer` has not stored; never backwards."""
    given = {"consumer": consumer, "topic": topic, "epoch": epoch}
    offsets = {"partitions": list(to), "next_offsets": list(to.values())}
    await connection.execute(_SQL["advance"], given | offsets)


async def lock_recreation(connection: AsyncConnection[Any]) -> bool:
    """Take the lock of `topics recreate`, held by the connection; return False if it is taken."""
    row = await (await connection.execute(_SQL["lock_recreation"])).fetchone()
    return row is not None and bool(row[0])
