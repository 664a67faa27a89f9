"""Recreates the topics of a log: everything waits, is saved, deleted, created and written again.

Killed at any moment and run again, it continues: until the saved folder is whole it begins again
with the old log, from then on with the folder. The new log epoch is written last.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from headstart.events.schema import new_id
from processing.state.rows import PARTITION_KEY, with_version
from replay.backup.check import check_backup
from replay.backup.folder import require_new
from replay.backup.manifest import Manifest, UnusableBackup, read_manifest
from replay.backup.restored_log import RestoredLog, unlearned_row
from replay.backup.saved_records import read_saved_records, read_saved_rows
from replay.log.row_files import table_in_files
from replay.recreation.held_producers import (
    HOLD_S,
    MEMBERS_S,
    hold_producers,
    log_ends,
    require_no_members,
    require_same_ends,
)
from replay.recreation.row_digests import RowsDigest
from replay.recreation.saved_log import RECREATED, save_log, saved_topics
from sinks.connections import connect_postgres, reporting_lost_connections
from sinks.epochs import known_epochs, remember_epoch
from sinks.postgres.progress import advance_offsets, lock_recreation
from topics.catalogue import (
    CHANGELOG,
    DECISIONS,
    EPISODES_GROUP,
    EVENTS,
    HISTORY_GROUP,
    PREDICTIONS_GROUP,
    SPANS_GROUP,
    THRESHOLDS,
    THRESHOLDS_GROUP,
)
from topics.epoch import Epoch, Recreation, next_number, read_log_state, write_log_state
from topics.kafka.admin import delete_topics
from topics.kafka.groups import delete_groups
from topics.kafka.reader import topic_state
from topics.kafka.topic_copies import create_copies
from topics.kafka.topic_states import describe_topics

GROUPS: Final = (THRESHOLDS_GROUP, EPISODES_GROUP, HISTORY_GROUP, PREDICTIONS_GROUP)
"""The consumer groups whose offsets are of the log; they are deleted with it."""
WRITING: Final = (*GROUPS, SPANS_GROUP)
"""Groups whose workers must not run."""
_SAVED: Final = {EVENTS.name: "events", THRESHOLDS.name: "steps", DECISIONS.name: "decisions"}
"""Kinds of the saved records, by topic."""


class LogIsVolatile(RuntimeError):
    """The broker keeps its log only in memory."""

    def __init__(self) -> None:
        super().__init__(
            "the embedded broker's topics end with `headstart up`, and the next start creates "
            "them: stop it instead. Nothing was changed"
        )


class RecreationRuns(RuntimeError):
    """The command runs already, here or on another host."""

    def __init__(self) -> None:
        super().__init__("another `headstart topics recreate` runs. Nothing was changed")


class NotWrittenAlike(RuntimeError):
    """The new log does not have what was saved."""

    def __init__(self, topic: str, partition: int, found: int, saved: int) -> None:
        super().__init__(
            f"{topic}, partition {partition}: {found:,} entries, and {saved:,} were saved, or their"
            " contents differ. Run this again: it writes them again"
        )


@dataclass(frozen=True)
class RecreationTarget:
    """The system whose log is recreated.

    `release`: version of Headstart. `hold_s`: how long producers get to notice it.
    """

    kafka: str
    postgres: str
    redis: str
    release: str
    hold_s: float = HOLD_S


class RecreatedLog(msgspec.Struct):
    """What was done. `rows`: by partition; `records`: carried over, by topic."""

    epoch: int
    before: int
    folder: str
    topics: list[str]
    rows: dict[int, int]
    records: dict[str, int]


async def recreate_log(
    target: RecreationTarget, folder: Path, echo: Callable[[str], None]
) -> RecreatedLog:
    """Recreate the log; what is carried over is saved to `folder` first.

    `folder`: absolute; ignored if an interrupted run has saved everything to another one. Raises
    `LogIsVolatile`, `RecreationRuns`, `WorkersRun`, `GroupsUnreadable`, `StillWritten`,
    `NotSettled`, `OpenTransactions`, `CannotWrite`, `UnusableBackup`, `NotWrittenAlike` and the
    errors of the services.
    """
    async with _alone(target.postgres) as require_lock:
        state = await read_log_state(target.kafka)
        epoch = state.before if isinstance(state, Recreation) else state
        if epoch.volatile:
            raise LogIsVolatile
        await require_no_members(target.kafka, WRITING)
        if isinstance(state, Epoch):
            known = await known_epochs(target.postgres, target.redis)
            number = next_number([*known, epoch.number])
            state = Recreation(new_id(), epoch, number)
        else:
            echo("continuing what was interrupted")
        if not state.saved:
            state, manifest = await _save(target, state, folder, echo)
        else:
            if not _is_own(folder, state.id):  # as it is after the folder was moved
                folder = Path(state.saved)
            echo(f"checking {folder}")
            manifest = check_backup(folder)
            if manifest.id != state.id:
                raise UnusableBackup(f"{folder} is not what the interrupted run has saved")
        return await _replace(target, state, folder, manifest, require_lock, echo)


@asynccontextmanager
async def _alone(postgres: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Hold the lock of a recreation; yield what raises `PostgresUnreachable` once it is lost."""
    async with await connect_postgres(postgres) as connection:
        if not await lock_recreation(connection):
            raise RecreationRuns

        async def require_lock() -> None:
            with reporting_lost_connections(postgres):
                await connection.execute("SELECT 1")

        yield require_lock


async def _save(
    target: RecreationTarget, state: Recreation, folder: Path, echo: Callable[[str], None]
) -> tuple[Recreation, Manifest]:
    """Hold producers and save the log; note in `headstart.epochs` that it is saved.

    After an error the log goes on as it was.
    """
    kafka, partitions = target.kafka, state.before.partitions
    _delete_own(folder, state.id)  # the log may have grown since an interrupted run
    require_new(folder)
    await write_log_state(kafka, state)
    try:
        echo(f"waiting for {target.hold_s:.0f} s, so that executors hold back what they emit")
        await hold_producers(kafka, partitions, target.hold_s)
        await require_no_members(kafka, WRITING)  # later ones wait
        ends = await log_ends(kafka, partitions)
        await save_log(kafka, target.postgres, state, folder, target.release, echo)
        manifest = check_backup(folder)  # as the disk has it
        require_same_ends(ends, await log_ends(kafka, partitions))
    except BaseException:
        _delete_own(folder, state.id)
        await write_log_state(kafka, state.before)
        raise
    saved = msgspec.structs.replace(state, saved=str(folder))
    await write_log_state(kafka, saved)
    return saved, manifest


def _is_own(folder: Path, id: str) -> bool:
    """Return whether a folder is what this recreation has saved."""
    with suppress(UnusableBackup, OSError):
        return read_manifest(folder).id == id
    return False


def _delete_own(folder: Path, id: str) -> None:
    if _is_own(folder, id):
        shutil.rmtree(folder, ignore_errors=True)


async def _replace(
    target: RecreationTarget,
    state: Recreation,
    folder: Path,
    manifest: Manifest,
    require_lock: Callable[[], Awaitable[None]],
    echo: Callable[[str], None],
) -> RecreatedLog:
    """Delete the topics, create them, and write what was saved; the epoch last."""
    kafka, epoch = target.kafka, Epoch(state.number, state.before.partitions)
    copies = list(saved_topics(folder, manifest))
    echo("deleting the topics")
    await require_lock()
    await delete_groups(kafka, GROUPS, MEMBERS_S)  # first: it raises while a worker runs
    await require_lock()
    await delete_topics(kafka, [topic.name for topic in RECREATED])
    echo("creating them")
    await require_lock()
    await create_copies(kafka, copies)
    echo("writing what was saved")
    log = RestoredLog(folder, manifest, epoch, kafka)
    await log.write_models()
    await log.write_kind("decisions", DECISIONS)
    await log.write_kind("steps", THRESHOLDS)
    stored = await log.write_events((), None)
    await log.write_rows()
    rows = await _check_rows(kafka, epoch, folder, manifest)
    await _check_records(kafka, epoch, folder, manifest)
    async with await connect_postgres(target.postgres) as connection:
        await advance_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch.number, stored)
    await remember_epoch(target.redis, epoch.number)
    await require_lock()
    await write_log_state(kafka, epoch)
    records = {topic: manifest.count(kind) for topic, kind in _SAVED.items()}
    return RecreatedLog(
        epoch.number,
        state.before.number,
        str(folder),
        [each.name for each in copies],
        rows,
        records,
    )


async def _check_rows(kafka: str, epoch: Epoch, folder: Path, manifest: Manifest) -> dict[int, int]:
    """Return by partition how many rows the new changelog has. Raises `NotWrittenAlike`."""
    own = dict.fromkeys(range(epoch.partitions), unlearned_row(epoch))
    saved = {number: RowsDigest() for number in own}
    for file in manifest.of_kind("rows"):
        for number, key, row in read_saved_rows(folder, file):
            written = with_version(row, epoch.number, -1)
            if key == PARTITION_KEY:
                own[number] = written
            else:
                saved[number].add(key, written)
    state = await topic_state(kafka, CHANGELOG.name)
    for number, digest in saved.items():
        digest.add(PARTITION_KEY, own[number])
        found = RowsDigest()
        async with table_in_files(kafka, state, number, folder) as table:
            for key, row in table.rows():
                found.add(key, row)
        if found != digest:
            raise NotWrittenAlike(CHANGELOG.name, number, found.count, digest.count)
    return {number: digest.count for number, digest in saved.items()}


async def _check_records(kafka: str, epoch: Epoch, folder: Path, manifest: Manifest) -> None:
    """Raise `NotWrittenAlike` unless each topic has as many records as were saved."""
    states = await describe_topics(kafka, _SAVED)
    for topic, kind in _SAVED.items():
        counts = Counter(
            each.partition
            for file in manifest.of_kind(kind)
            for each in read_saved_records(folder, file)
        )
        for number in range(epoch.partitions):
            if (end := states[topic].end[number]) != counts[number]:
                raise NotWrittenAlike(topic, number, end, counts[number])
