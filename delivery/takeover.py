"""How a rebuild is taken over: the log read twice, then a table replaced, bit by bit.

The replacement is many commits at one offset. With the last comes the watermark; until then whoever
has the partition meets the rebuild again, does it all once more, and comes to the same rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final

from processing.answers import serves, stored_threshold
from processing.partition import Commit
from processing.rebuilds import KEY
from processing.records import RecordBatch
from processing.rows import PARTITION_KEY
from processing.takeover import Row, Takeover

Read = Callable[[range], AsyncIterator[RecordBatch]]
"""Offsets of a partition to its records."""
COMMIT_BYTES: Final = 2_000_000
"""Of the rows of one commit; each is published before the next one is sent."""

LAST: Final = {KEY, PARTITION_KEY}
"""Rows that are in the last commit together: one without the other would be half a rebuild."""


async def feed(takeover: Takeover, read: Read) -> None:
    """Have a takeover read what it needs."""
    async for batch in read(takeover.log):
        takeover.gather(batch)
    if takeover.begin():
        async for batch in read(takeover.log):
            takeover.apply(batch)


def replacing(rows: Iterable[Row], partition: int, offset: int) -> Iterator[Commit]:
    """Yield the commits that make a table what it is at `offset`, from `Takeover.replacing`.

    The group's offset moves past `offset` with the last of them, so that a successor publishes
    what may not have been.
    """
    part: list[Row] = []
    size = 0
    for key, row in rows:
        if size > COMMIT_BYTES and key not in LAST:
            yield _commit(part, partition, offset)
            part, size = [], 0
        part.append((key, row))
        size += len(key) + len(row)
    yield _commit(part, partition, offset + 1)


def _commit(rows: list[Row], partition: int, end: int) -> Commit:
    served = [stored_threshold(key, row) for key, row in rows if serves(partition, key)]
    return Commit(end, rows, served, served, [], 0)
