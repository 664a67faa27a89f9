"""Drops the indexes of a table before it is filled, and builds them afterwards.

Of many rows that takes less than half as long as to insert each into every index, and leaves the
indexes without gaps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from sinks.postgres.statements import load_statements

_SQL = load_statements("backup")


@asynccontextmanager
async def without_indexes(connection: AsyncConnection[Any], table: str) -> AsyncIterator[None]:
    """Let a table, and its partitions, have no index and no key until the block ends.

    After an exception they are not built: use it in a transaction, or expect to drop the table.
    """
    found = await (await connection.execute(_SQL["indexes"], {"table": table})).fetchall()
    for drop, _build in found:
        await connection.execute(drop.encode())
    yield
    for _drop, build in found:
        await connection.execute(build.encode())
