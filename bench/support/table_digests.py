"""Digests of a system's tables and of its learned rows, by which two systems are compared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from psycopg import sql

from deploy.local import Addresses
from processing.state.rows import with_version
from replay.log.row_files import table_in_files
from replay.recreation.row_digests import RowsDigest
from sinks.connections import connect_postgres
from sinks.postgres.table_copy import snapshot, stored_tables
from topics.catalogue import CHANGELOG
from topics.epoch import read_epoch
from topics.kafka.reader import topic_state

_DIGEST: Final = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) FROM {} AS t"
_OF_EPOCH: Final = " WHERE epoch = {} AND consumer <> 'headstart-restore'"
OFFSETS: Final = "sink_offsets"
"""The table that a restore adds rows to: of its mark, and of the new log epoch."""

Digests = dict[str, tuple[int, int]]
"""The number of rows, and the sum of their hashes, by name of a table or partition of rows."""


def digests(at: Addresses, folder: Path, epoch: int) -> Digests:
    """Return the digests of a system's tables, and of its learned rows without their versions.

    Of `sink_offsets` only rows of log epoch `epoch` count. `folder`: for temporary files.
    """

    async def both() -> Digests:
        return await table_digests(at.postgres, epoch) | await _rows(at.kafka, folder)

    return asyncio.run(both())


async def table_digests(dsn: str, epoch: int) -> Digests:
    """Return the digests of the tables; of `sink_offsets` only rows of log epoch `epoch` count."""
    found: Digests = {}
    async with await connect_postgres(dsn) as connection, snapshot(connection):
        for table in await stored_tables(connection):
            query = sql.SQL(_DIGEST).format(sql.Identifier(table.name))
            if table.name == OFFSETS:
                query += sql.SQL(_OF_EPOCH).format(sql.Literal(epoch))
            row = await (await connection.execute(query)).fetchone()
            assert row is not None
            found[table.name] = int(row[0]), int(row[1])
    return found


async def _rows(kafka: str, folder: Path) -> Digests:
    epoch, state = await read_epoch(kafka), await topic_state(kafka, CHANGELOG.name)
    found: Digests = {}
    for number in range(epoch.partitions):
        digest = RowsDigest()
        async with table_in_files(kafka, state, number, folder) as table:
            for key, row in table.rows():
                digest.add(key, with_version(row, 0, -1))
        found[f"rows of partition {number}"] = digest.count, digest.total
    return found
