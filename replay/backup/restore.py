"""Restores a backup into an empty system: tables in one transaction, then the log and its rows.

Interrupted and given again it ends the same: the database knows from which backup its tables are,
and what is in the new log already must be what would be written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from psycopg import AsyncConnection

from replay.backup.check import check_backup
from replay.backup.manifest import Manifest
from replay.backup.restored_log import RestoredLog, require_empty_log, require_no_workers
from replay.backup.restored_tables import CannotRestore, RestoredTables
from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate, read_migrations
from sinks.postgres.purges import read_purges
from sinks.postgres.table_copy import finish_restore, restored_epoch
from topics.catalogue import EPISODES_GROUP, EVENTS
from topics.control.messages import Purge
from topics.epoch import Epoch, read_epoch
from topics.kafka.reader import topic_state


@dataclass(frozen=True)
class RestoreTarget:
    """The system to restore into; `operators_key` signs control records."""

    kafka: str
    postgres: str
    operators_key: bytes | None = field(default=None, repr=False)


class RestoreResult(msgspec.Struct):
    """What a restore has done. `lost`: records of the same log that retention deleted.

    `again`: records of the saved end of the log, which workers apply; `purges`: applied again.
    """

    backup: str
    epoch: int
    same_log: bool
    already: bool = False
    rows: dict[str, int] = {}
    contexts: int = 0
    again: int = 0
    purges: int = 0
    lost: dict[int, int] = {}
    seconds: float = 0.0


async def restore_backup(
    folder: Path,
    target: RestoreTarget,
    purges: Sequence[Purge] | None,
    echo: Callable[[str], None],
) -> RestoreResult:
    """Restore a backup. `purges`: those after it, as far as they are known; None: not known.

    Raises `UnusableBackup`, `CannotRestore`, `WorkersRun`, `NotEmpty`, `LogNotEmpty`, and the
    errors of the services.
    """
    begun = time.monotonic()
    manifest = check_backup(folder, echo, unpack=False)
    epoch = await read_epoch(target.kafka)
    same_log = epoch.number == manifest.epoch
    _require_fit(manifest, epoch, purges, same_log=same_log)
    if same_log:
        await _require_log_of(manifest, target.kafka)
    await require_no_workers(target.kafka)
    await migrate(target.postgres)
    result = RestoreResult(manifest.id, epoch.number, same_log)
    async with await connect_postgres(target.postgres) as connection:
        mark = await restored_epoch(connection, manifest.id)
        if mark is None:
            if not same_log:
                await require_empty_log(target.kafka)
            await RestoredTables(connection, folder, manifest, echo).write(same_log=same_log)
        elif mark[0]:
            _require_log_of_mark(mark[1], epoch)
            result.already = True
            return result
        result.rows = {each.table or "": each.entries for each in manifest.of_kind("table")}
        if same_log:
            result.lost = await _deleted_records(target.kafka, manifest)
            await finish_restore(connection, manifest.id, epoch.number)
        else:
            await _restore_log(connection, folder, manifest, target, epoch, purges or (), result)
    result.seconds = round(time.monotonic() - begun, 3)
    return result


def _require_fit(
    manifest: Manifest, epoch: Epoch, purges: Sequence[Purge] | None, *, same_log: bool
) -> None:
    if manifest.migrations != tuple((str(each), each.checksum) for each in read_migrations()):
        raise CannotRestore(
            f"the backup has the schema of Headstart {manifest.version}, which differs from this "
            "version's: restore it with that version, then upgrade. Nothing was changed"
        )
    if same_log:
        return
    if epoch.partitions != manifest.partitions:
        raise CannotRestore(
            f"the backup has {manifest.partitions} partitions, and the topics {epoch.partitions}: "
            f"create them with --partitions {manifest.partitions}. Nothing was changed"
        )
    if epoch.number < manifest.epoch:
        raise CannotRestore(
            f"the broker's log epoch {epoch.number} is older than the backup's, {manifest.epoch}: "
            "is its host's clock right? Create the topics again. Nothing was changed"
        )
    if purges is None:
        raise CannotRestore(
            "the log of the backup is gone, and with it what was purged after the backup: give "
            "the newest list of `headstart backup purges` as --purges FILE, or "
            "--no-later-purges if nothing was purged since. Nothing was changed"
        )


def _require_log_of_mark(restored: int, epoch: Epoch) -> None:
    if restored != epoch.number:
        raise CannotRestore(
            f"the database has this backup already, restored with log epoch {restored}, and the "
            f"broker's is {epoch.number}: its log is another one. Restore into a new database. "
            "Nothing was changed"
        )


async def _require_log_of(manifest: Manifest, kafka: str) -> None:
    end = (await topic_state(kafka, EVENTS.name)).end
    if any(end[number] < offset for number, offset in manifest.log_end.items()):
        raise CannotRestore(
            f"the log has the backup's epoch, {manifest.epoch}, and ends before the backup: it is "
            "another log. Create its topics again. Nothing was changed"
        )


async def _deleted_records(kafka: str, manifest: Manifest) -> dict[int, int]:
    """Return by partition how many records that Postgres lacks were deleted by retention."""
    begin = (await topic_state(kafka, EVENTS.name)).begin
    missing = {n: begin[n] - manifest.stored.get(n, 0) for n in range(manifest.partitions)}
    return {number: count for number, count in missing.items() if count > 0}


async def _restore_log(
    connection: AsyncConnection[Any],
    folder: Path,
    manifest: Manifest,
    target: RestoreTarget,
    epoch: Epoch,
    purges: Sequence[Purge],
    result: RestoreResult,
) -> None:
    known = {each.purge.id for each in await read_purges(connection)}
    later = [each for each in purges if each.id not in known]
    log = RestoredLog(folder, manifest, epoch, target.kafka)
    stored = await log.write_events(later, target.operators_key)
    result.again, result.purges = manifest.count("events"), len(later)
    await log.write_models()
    await log.write_commands()
    result.contexts = await log.write_rows()
    progress = [(EPISODES_GROUP, EVENTS.name, stored)]
    await finish_restore(connection, manifest.id, epoch.number, progress)
