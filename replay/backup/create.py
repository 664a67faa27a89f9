"""Creates a backup while the system runs: learned rows first, then Postgres, then the log's end.

The rows stand for a prefix of the log. Postgres is read once it has stored that prefix, so what it
lacks is in the saved end of the log, which begins behind the rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from psycopg import AsyncConnection

from headstart.events.schema import new_id
from replay.backup.folder import whole_folder
from replay.backup.manifest import FORMAT, BackupFile, Manifest, SequenceState, write_manifest
from replay.backup.packed_files import PackedWriter
from replay.backup.saved_records import record_line, row_line
from replay.log.live_table import applied_offset, live
from replay.log.row_files import settled_table_in_files
from sinks.postgres.migrate import read_migrations
from sinks.postgres.progress import stored_offsets
from sinks.postgres.reading import reading_postgres
from sinks.postgres.table_copy import (
    copy_out,
    event_days,
    read_sequences,
    snapshot,
    stored_tables,
)
from topics.catalogue import COMMANDS, EPISODES_GROUP, EVENTS, HISTORY_GROUP, MODELS, THRESHOLDS
from topics.commands.messages import BEGIN_KEY
from topics.epoch import Epoch, read_epoch
from topics.kafka.reader import read_records, topic_state
from topics.models.records import MARKER_KEY

_LOOK_S: Final = 0.2


class SinksBehind(RuntimeError):
    """Postgres has not stored what thresholds have learned from."""

    def __init__(self, behind: Mapping[int, int], wait_s: float) -> None:
        super().__init__(
            f"Postgres lacks {sum(behind.values()):,} records that thresholds have learned from, "
            f"after {wait_s:g} s (partitions {', '.join(map(str, behind))}): is the worker "
            "`episodes` running? See `headstart status`; --wait SECONDS waits longer. No backup "
            "was written"
        )


@dataclass(frozen=True)
class BackupSource:
    """The system to back up. `version`: of Headstart."""

    kafka: str
    postgres: str
    version: str


async def create_backup(
    source: BackupSource, folder: Path, echo: Callable[[str], None], wait_s: float
) -> Manifest:
    """Write a backup to a folder, which must not exist or be empty; return its manifest.

    Raises `CannotWrite`, `SinksBehind`, and the errors of the services; there is no folder then.
    """
    with whole_folder(folder) as place:
        manifest = await _Backup(source, place, echo).run(wait_s)
        write_manifest(place, manifest)
    return manifest


class _Backup:
    def __init__(self, source: BackupSource, folder: Path, echo: Callable[[str], None]) -> None:
        self._kafka, self._source, self._folder, self._echo = source.kafka, source, folder, echo
        self._files: list[BackupFile] = []
        self._applied: dict[int, int] = {}

    async def run(self, wait_s: float) -> Manifest:
        epoch = await read_epoch(self._kafka)
        created = time.time_ns() // 1_000_000
        await self._save_rows(epoch)
        await self._save_latest(MODELS.name, "models", MARKER_KEY)
        await self._save_latest(COMMANDS.name, "commands", BEGIN_KEY)
        history = (await topic_state(self._kafka, THRESHOLDS.name)).end
        async with reading_postgres(self._source.postgres) as connection:
            await self._wait(connection, epoch, history, wait_s)
            async with snapshot(connection):
                stored = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch.number)
                await self._save_tables(connection)
                days = await event_days(connection)
                sequences = await read_sequences(connection, await stored_tables(connection))
            postgres = connection.info.parameter_status("server_version") or ""
        ends = await self._save_events(epoch)
        return Manifest(
            FORMAT, new_id(), created, self._source.version, postgres, epoch.number,
            epoch.partitions, tuple((str(each), each.checksum) for each in read_migrations()),
            tuple(days), tuple(SequenceState(*each) for each in sequences), self._applied,
            stored, ends, tuple(self._files),
        )  # fmt: skip

    async def _save_rows(self, epoch: Epoch) -> None:
        with PackedWriter(self._folder, "learned_rows.jsonl.zst") as file:
            for number in range(epoch.partitions):
                async with settled_table_in_files(
                    self._kafka, number, epoch.number, self._folder
                ) as table:
                    self._applied[number] = applied_offset(live(table.own))
                    for key, row in table.rows():
                        file.add(row_line(number, key, row))
            self._done(file.finish("rows"))

    async def _save_latest(self, topic: str, kind: str, left_out: bytes) -> None:
        """Save the last record of each key of a compacted topic."""
        state, last = await topic_state(self._kafka, topic), dict[tuple[int, bytes], Any]()
        async for record in read_records(self._kafka, topic, state.begin, state.end):
            if record.key is None or record.key == left_out:
                continue
            last.pop((record.partition, record.key), None)
            if record.value is not None:
                last[record.partition, record.key] = record
        with PackedWriter(self._folder, f"{kind}.jsonl.zst") as file:
            for record in last.values():
                file.add(record_line(record))
            self._done(file.finish(kind))

    async def _wait(
        self,
        connection: AsyncConnection[Any],
        epoch: Epoch,
        history: Mapping[int, int],
        wait_s: float,
    ) -> None:
        """Wait until Postgres has stored what the rows have learned from, and their history."""
        needed = {number: offset + 1 for number, offset in self._applied.items()}
        deadline = time.monotonic() + wait_s
        while True:
            stored = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch.number)
            behind = _behind(needed, stored)
            steps = await stored_offsets(connection, HISTORY_GROUP, THRESHOLDS.name, epoch.number)
            late = _behind(history, steps)
            if not behind and not late:
                return
            if time.monotonic() > deadline:
                if behind:
                    raise SinksBehind(behind, wait_s)
                self._echo(f"warning: the history of thresholds lacks {sum(late.values()):,} steps")
                return
            await asyncio.sleep(_LOOK_S)

    async def _save_tables(self, connection: AsyncConnection[Any]) -> None:
        for table in await stored_tables(connection):
            with PackedWriter(self._folder, f"table_{table.name}.copy.zst") as file:
                file.entries = await copy_out(connection, table, file.write)
                self._done(file.finish("table", table=table.name, columns=table.columns))

    async def _save_events(self, epoch: Epoch) -> dict[int, int]:
        """Save the log behind the rows; return by partition where it ends."""
        state = await topic_state(self._kafka, EVENTS.name)
        begin = {n: max(state.begin[n], self._applied[n] + 1) for n in range(epoch.partitions)}
        end = {number: state.end[number] for number in begin}
        with PackedWriter(self._folder, "log_end.jsonl.zst") as file:
            async for record in read_records(self._kafka, EVENTS.name, begin, end):
                file.add(record_line(record))
            self._done(file.finish("events"))
        return end

    def _done(self, file: BackupFile) -> None:
        self._files.append(file)
        if file.entries:
            self._echo(f"{file.name}: {file.entries:,} entries, {file.bytes:,} bytes")


def _behind(needed: Mapping[int, int], reached: Mapping[int, int]) -> dict[int, int]:
    left = {number: offset - reached.get(number, 0) for number, offset in needed.items()}
    return {number: count for number, count in left.items() if count > 0}
