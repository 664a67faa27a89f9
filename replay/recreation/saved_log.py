"""Saves what a recreated log needs of the old one to a folder: rows, models, unprocessed records.

The folder has the form of a backup without tables (`replay.backup`). It appears when it is whole.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from processing.state.rows import PARTITION_KEY, version
from replay.backup.folder import whole_folder
from replay.backup.manifest import (
    FORMAT,
    BackupFile,
    Manifest,
    UnusableBackup,
    write_manifest,
)
from replay.backup.packed_files import PackedWriter, lines_of
from replay.backup.saved_records import record_line, row_line, saved_line
from replay.log.live_table import applied_offset, is_settled, live
from replay.log.row_files import RowFiles, table_in_files
from replay.recreation.carried_records import (
    PartitionStates,
    first_needed_events,
    headers_of_event,
)
from sinks.postgres.progress import stored_offsets
from sinks.postgres.reading import reading_postgres
from topics.catalogue import (
    CHANGELOG,
    DECISIONS,
    EPISODES_GROUP,
    EVENTS,
    HISTORY_GROUP,
    MODELS,
    THRESHOLDS,
    Topic,
)
from topics.epoch import Recreation
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_copies import TopicCopy, describe_copies
from topics.kafka.topic_states import TopicState

RECREATED: Final = (EVENTS, CHANGELOG, THRESHOLDS, DECISIONS, MODELS)
"""The topics whose offsets belong to the log epoch. `headstart.epochs`, which says that the log is
being recreated, and the notices stay."""


class NotSettled(RuntimeError):
    """What was learned in a partition is not all in the changelog."""

    def __init__(self, partition: int, what: str) -> None:
        super().__init__(
            f"partition {partition}: {what}. Start the workers, wait until `headstart status "
            "--exit-when-ready` ends, stop them, and run this again. Nothing was deleted"
        )


class OpenTransactions(RuntimeError):
    """Records of a topic cannot be read yet."""

    def __init__(self, topic: str, records: int) -> None:
        super().__init__(
            f"{topic} has {records:,} records behind an open transaction, which would be lost: "
            "commit or abort it (`headstart doctor` names it), and run this again. Nothing was "
            "deleted"
        )


async def save_log(
    kafka: str,
    postgres: str,
    recreation: Recreation,
    folder: Path,
    release: str,
    echo: Callable[[str], None],
) -> Manifest:
    """Save the log of `recreation.before` to a new folder; return the manifest.

    `release`: version of Headstart. Raises `CannotWrite`, `NotSettled`, `OpenTransactions` and the
    errors of the services; there is no folder then.
    """
    with whole_folder(folder) as place:
        manifest = await _Saving(kafka, recreation, place, echo).run(postgres, release)
        write_manifest(place, manifest)
    return manifest


class _Saving:
    def __init__(
        self, kafka: str, recreation: Recreation, folder: Path, echo: Callable[[str], None]
    ) -> None:
        self._kafka, self._folder, self._echo = kafka, folder, echo
        self._recreation, self._epoch = recreation, recreation.before
        self._files: list[BackupFile] = []

    async def run(self, postgres: str, release: str) -> Manifest:
        number = self._epoch.number
        async with reading_postgres(postgres) as connection:
            stored = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, number)
            steps = await stored_offsets(connection, HISTORY_GROUP, THRESHOLDS.name, number)
        await self._save_topics()
        applied = await self._save_rows()
        await self._save_models()
        await self._save_steps(steps)
        ends = await self._save_events(applied, stored)
        return Manifest(
            FORMAT, self._recreation.id, time.time_ns() // 1_000_000, release, "", number,
            self._epoch.partitions, (), (), (), applied, stored, ends, tuple(self._files),
        )  # fmt: skip

    async def _save_topics(self) -> None:
        """Save how the topics are to be created again."""
        with PackedWriter(self._folder, "topics.jsonl.zst") as file:
            for each in await describe_copies(self._kafka, RECREATED, self._epoch.partitions):
                file.add(msgspec.json.encode(each) + b"\n")
            self._done(file.finish("topics"))

    async def _save_rows(self) -> dict[int, int]:
        """Save all rows; return the last applied offset by partition, -1: none."""
        state, applied = await topic_state(self._kafka, CHANGELOG.name), dict[int, int]()
        with PackedWriter(self._folder, "learned_rows.jsonl.zst") as file:
            for number in range(self._epoch.partitions):
                async with table_in_files(self._kafka, state, number, self._folder) as table:
                    _require_settled(table, number, self._epoch.number)
                    applied[number] = applied_offset(live(table.own))
                    for key, row in table.rows():
                        file.add(row_line(number, key, row))
            self._done(file.finish("rows"))
        return applied

    async def _save_models(self) -> None:
        """Save the newest state of each shared model, and the decisions that it lacks."""
        models, decisions = await self._state(MODELS), await self._state(DECISIONS)
        states = {
            n: PartitionStates(self._epoch.number, decisions.end[n])
            for n in range(self._epoch.partitions)
        }
        async for record in self._records(MODELS, models, models.begin):
            states[record.partition].add(record)
        with PackedWriter(self._folder, "models.jsonl.zst") as file:
            for record in (each for of in states.values() for each in of.newest.values()):
                file.add(record_line(record))
            self._done(file.finish("models"))
        begin = {n: max(decisions.begin[n], each.needed()) for n, each in states.items()}
        with PackedWriter(self._folder, "decisions.jsonl.zst") as file:
            async for record in self._records(DECISIONS, decisions, begin):
                if states[record.partition].lacks(record):
                    file.add(record_line(record))
            self._done(file.finish("decisions"))

    async def _save_steps(self, stored: Mapping[int, int]) -> None:
        """Save the steps of thresholds that the history lacks."""
        state = await self._state(THRESHOLDS)
        begin = {n: max(state.begin[n], stored.get(n, 0)) for n in range(self._epoch.partitions)}
        with PackedWriter(self._folder, "steps.jsonl.zst") as file:
            async for record in self._records(THRESHOLDS, state, begin):
                file.add(record_line(record))
            self._done(file.finish("steps"))

    async def _save_events(
        self, applied: Mapping[int, int], stored: Mapping[int, int]
    ) -> dict[int, int]:
        """Save the events that a group has not processed; return where the log ends."""
        state = await self._state(EVENTS)
        begin = first_needed_events(applied, stored, state.begin)
        with PackedWriter(self._folder, "log_end.jsonl.zst") as file:
            async for record in self._records(EVENTS, state, begin):
                headers = headers_of_event(record, applied[record.partition])
                if headers is not None:
                    file.add(saved_line(record, headers))
            self._done(file.finish("events"))
        return {n: state.end[n] for n in applied}

    async def _state(self, topic: Topic) -> TopicState:
        state = await topic_state(self._kafka, topic.name)
        if held := sum(state.held_back.values()):
            raise OpenTransactions(topic.name, held)
        return state

    def _records(
        self, topic: Topic, state: TopicState, begin: Mapping[int, int]
    ) -> AsyncIterable[Any]:
        """Return the records of the partitions that the log epoch uses."""
        used = {n: begin[n] for n in range(self._epoch.partitions)}
        return read_records(self._kafka, topic.name, used, {n: state.end[n] for n in used})

    def _done(self, file: BackupFile) -> None:
        self._files.append(file)
        if file.entries:
            self._echo(f"{file.name}: {file.entries:,} entries, {file.bytes:,} bytes")


def _require_settled(table: RowFiles, partition: int, epoch: int) -> None:
    """Raise `NotSettled` unless rows are what was learned up to the partition's offset."""
    decisive = live(table.own)
    own = decisive.get(PARTITION_KEY)
    whole = own is not None and version(own)[0] == epoch
    if not whole and any(True for _row in table.rows()):
        raise NotSettled(partition, "its rows are not all in the changelog of this log epoch")
    if not is_settled(decisive, epoch):
        raise NotSettled(partition, "a rebuild is in progress")


def saved_topics(folder: Path, manifest: Manifest) -> Iterator[TopicCopy]:
    """Yield the topics of a saved log. Raises `UnusableBackup` and `OSError`."""
    for file in manifest.of_kind("topics"):
        for line in lines_of(folder, file):
            try:
                yield msgspec.json.decode(line, type=TopicCopy)
            except msgspec.MsgspecError as error:
                raise UnusableBackup(f"{folder / file.name}: damaged: {error}") from error
