"""Writes the log's part of a backup to a broker whose log is new: events, rows, models, commands.

The rows get the version of before offset 0 of the new log epoch, as if a worker had migrated them
(agents/thresholds/epoch_migration.py), and the saved end of the log begins at offset 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from processing.state.rows import (
    CONTEXT,
    PARTITION_KEY,
    TaskStateRow,
    encode_partition,
    is_row,
    with_version,
)
from replay.backup.manifest import Manifest, UnusableBackup
from replay.backup.record_writer import (
    BATCH_BYTES,
    kept_by_retention,
    producing,
    send_saved,
)
from replay.backup.restored_events import PrefixDiffers, RestoredEvents
from replay.backup.saved_records import SavedRecord, read_saved_records, read_saved_rows
from replay.purge.run import purge_parts
from topics.catalogue import (
    CHANGELOG,
    COMMANDS,
    EPISODES_GROUP,
    EVENTS,
    HISTORY_GROUP,
    MODELS,
    PREDICTIONS_GROUP,
    THRESHOLDS,
    THRESHOLDS_GROUP,
    Topic,
)
from topics.control.messages import Purge, control_records
from topics.epoch import Epoch
from topics.kafka.groups import describe_groups
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_states import describe_topics

_GROUPS: Final = (THRESHOLDS_GROUP, EPISODES_GROUP, HISTORY_GROUP, PREDICTIONS_GROUP)


class LogNotEmpty(RuntimeError):
    """The broker's log has records that are not of this restore."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"the log is not empty: {topic} has records that are not of this backup. Restore into "
            "a new one while no worker and no executor runs (`headstart up --no-workers`)"
        )


class WorkersRun(RuntimeError):
    """Workers are members of a consumer group; nothing was changed."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"workers of group {group} run: stop them on every host (with `up`: start it with "
            "--no-workers). A killed one counts for some seconds more. Nothing was changed"
        )


async def require_no_workers(kafka: str) -> None:
    """Raise `WorkersRun` if a group has members, where the broker reports what they own."""
    for group, state in (await describe_groups(kafka, _GROUPS)).items():
        if state.members and state.owned is not None:
            raise WorkersRun(group)


async def require_empty_log(kafka: str) -> None:
    """Raise `LogNotEmpty` if a topic of the log has records."""
    names = [EVENTS.name, CHANGELOG.name, MODELS.name, THRESHOLDS.name]
    for name, state in (await describe_topics(kafka, names)).items():
        if any(state.end.values()):
            raise LogNotEmpty(name)


def unlearned_row(epoch: Epoch) -> bytes:
    """Return the own row of a partition in which nothing was learned."""
    return encode_partition(TaskStateRow(), epoch.number, -1)


class RestoredLog:
    """The log that a backup is restored to."""

    def __init__(self, folder: Path, manifest: Manifest, epoch: Epoch, kafka: str) -> None:
        self._folder, self._manifest, self._epoch = folder, manifest, epoch
        self._kafka = kafka

    async def write_events(
        self, purges: Sequence[Purge], operators_key: bytes | None
    ) -> dict[int, int]:
        """Write the saved end of the log and then purges; return what Postgres has of it.

        That is, by partition, the first offset that the restored tables lack. Raises `LogNotEmpty`.
        """
        numbers = range(self._epoch.partitions)
        later = list(self._control_records(purges, operators_key))

        def records() -> Iterable[SavedRecord]:
            return chain(map(kept_by_retention, self._saved("events", EVENTS.name)), later)

        restored = RestoredEvents(records, self._epoch.partitions, self._manifest.stored)
        state = await topic_state(self._kafka, EVENTS.name)
        end = {number: state.end[number] for number in numbers}
        try:
            await restored.require_prefix(
                self._kafka, EVENTS.name, {number: state.begin[number] for number in numbers}, end
            )
        except PrefixDiffers as error:
            raise LogNotEmpty(EVENTS.name) from error
        async with producing(self._kafka) as producer:
            await send_saved(producer, EVENTS.name, restored.missing(end))
        written = (await topic_state(self._kafka, EVENTS.name)).end
        if any(written[number] != restored.counts[number] for number in numbers):
            raise LogNotEmpty(EVENTS.name)
        return restored.stored

    def _control_records(
        self, purges: Sequence[Purge], operators_key: bytes | None
    ) -> Iterable[SavedRecord]:
        for part in (part for purge in purges for part in purge_parts(purge)):
            for out in control_records(part, range(self._epoch.partitions), operators_key):
                headers = tuple(out.headers)
                yield SavedRecord(out.partition, -1, None, out.key, out.value, headers)

    async def write_rows(self) -> int:
        """Write the learned rows, each partition's own row last; return how many contexts.

        Every partition gets its own row: no worker then looks for rows of before the backup.
        """
        nothing = unlearned_row(self._epoch)
        own = {
            number: SavedRecord(number, -1, None, PARTITION_KEY, nothing)
            for number in range(self._epoch.partitions)
        }
        contexts = 0
        async with producing(self._kafka) as producer:
            batch, size = list[SavedRecord](), 0
            for partition, key, row in self._rows():
                changed = with_version(row, self._epoch.number, -1)
                record = SavedRecord(partition, -1, None, key, changed)
                if key == PARTITION_KEY:
                    own[partition] = record
                    continue
                contexts += key.startswith(CONTEXT)
                batch.append(record)
                size += len(row)
                if size > BATCH_BYTES:
                    await send_saved(producer, CHANGELOG.name, batch)
                    batch, size = [], 0
            await send_saved(producer, CHANGELOG.name, batch)
            await send_saved(producer, CHANGELOG.name, own.values())
        return contexts

    def _rows(self) -> Iterable[tuple[int, bytes, bytes]]:
        for file in self._manifest.of_kind("rows"):
            for partition, key, row in read_saved_rows(self._folder, file):
                if not 0 <= partition < self._epoch.partitions or not is_row(key, row):
                    raise UnusableBackup(f"{self._folder / file.name}: damaged: no row of a table")
                yield partition, key, row

    async def write_models(self) -> None:
        """Write the last state of each shared model."""
        await self.write_kind("models", MODELS)

    async def write_kind(self, kind: str, topic: Topic) -> None:
        """Write all saved records of a kind to their partitions of a topic."""
        saved = self._saved(kind, topic.name)
        if topic.cleanup == "delete":
            saved = map(kept_by_retention, saved)
        async with producing(self._kafka) as producer:
            await send_saved(producer, topic.name, saved)

    async def write_commands(self) -> None:
        """Write the overrides and modes that the new log does not have."""
        state = await topic_state(self._kafka, COMMANDS.name)
        known = {
            record.key
            async for record in read_records(self._kafka, COMMANDS.name, state.begin, state.end)
        }
        async with producing(self._kafka) as producer:
            saved = self._saved("commands", COMMANDS.name)
            await send_saved(producer, COMMANDS.name, (e for e in saved if e.key not in known))

    def _saved(self, kind: str, topic: str) -> Iterable[SavedRecord]:
        most = 1 if topic == COMMANDS.name else self._epoch.partitions
        for file in self._manifest.of_kind(kind):
            for each in read_saved_records(self._folder, file):
                if not 0 <= each.partition < most:
                    raise UnusableBackup(f"{self._folder / file.name}: damaged: a wrong partition")
                yield each
