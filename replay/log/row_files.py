"""The rows of one partition of a changelog, kept in temporary files instead of memory.

Records are shared out among files by their key, so that each file has all records of its keys, and
the rows of one file at a time are in memory, however many the partition has.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self
from zlib import crc32

from processing.control.rebuild_state import UNDERWAY
from processing.state.rows import PARTITION_KEY, is_row
from replay.log.live_table import SETTLED_S, Rows, apply_record, is_settled, live
from topics.catalogue import CHANGELOG
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_states import TopicState

FILES: Final = 64
_HEAD: Final = struct.Struct("<ii")
_NO_ROW: Final = -1
_OWN: Final = (PARTITION_KEY, UNDERWAY)
_BUFFER_BYTES: Final = 1 << 16


class RowFiles:
    """The records of one partition's changelog, in temporary files without a name.

    `own`: what decides whether the partition is settled: its own row, and that of a rebuild.
    """

    def __init__(self, folder: Path) -> None:
        """`folder`: where the files are. Raises `OSError`."""
        self._files: list[IO[bytes]] = []
        self.own: Rows = {}
        with ExitStack() as opened:
            for _ in range(FILES):
                file = opened.enter_context(
                    tempfile.TemporaryFile(buffering=_BUFFER_BYTES, dir=folder)
                )
                self._files.append(file)
            self._close = opened.pop_all().close

    def add(self, key: bytes | None, row: bytes | None) -> None:
        """Append a record of the changelog, in its order; what is no row is left out."""
        if key is None or not is_row(key, row):
            return
        file = self._files[crc32(key) % FILES]
        file.write(_HEAD.pack(len(key), _NO_ROW if row is None else len(row)))
        file.write(key)
        if row is not None:
            file.write(row)
        if key in _OWN:
            apply_record(self.own, key, row)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the live rows by the rule of recovery, when all records are added."""
        for file in self._files:
            rows: Rows = {}
            for key, row in _records(file):
                apply_record(rows, key, row)
            yield from live(rows).items()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()


def _records(file: IO[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
    file.seek(0)
    while head := file.read(_HEAD.size):
        key, row = _HEAD.unpack(head)
        yield file.read(key), None if row == _NO_ROW else file.read(row)


@asynccontextmanager
async def table_in_files(
    kafka: str, state: TopicState, partition: int, folder: Path
) -> AsyncIterator[RowFiles]:
    """Yield one partition of the table; the files in `folder` go with the block.

    `state`: of the changelog. Raises `BrokerUnreachable` and `OSError`.
    """
    begin, end = {partition: state.begin[partition]}, {partition: state.end[partition]}
    with RowFiles(folder) as files:
        async for record in read_records(kafka, CHANGELOG.name, begin, end):
            files.add(record.key, record.value)
        yield files


@asynccontextmanager
async def settled_table_in_files(
    kafka: str, partition: int, epoch: int, folder: Path, patience_s: float = SETTLED_S
) -> AsyncIterator[RowFiles]:
    """Yield one partition of the table once no rebuild of it is in progress.

    After `patience_s` seconds in any case. Raises as `table_in_files`, and `TopicsMissing`.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        state = await topic_state(kafka, CHANGELOG.name)
        async with table_in_files(kafka, state, partition, folder) as files:
            late = asyncio.get_running_loop().time() > deadline
            if late or is_settled(live(files.own), epoch):
                yield files
                return
        await asyncio.sleep(0.5)
