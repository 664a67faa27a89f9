"""Decides under a new log epoch whose local store has a partition's rows, and adopts them.

The new changelog is empty, and a partition's rows are in the local store of its last owner, which
Redis names (`sinks.redis.last_owners`). A worker adopts a partition only from a store that has all
of that; gives what it has of others' partitions to the changelog; and waits for what it lacks.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from agents.config import CannotOpenYet
from agents.thresholds.epoch_migration import migrate_rows_to_epoch
from agents.thresholds.recovery import adopted_partitions
from agents.thresholds.services import PartitionServices
from processing.state.rows import PARTITION_KEY, version
from sinks.redis.last_owners import KEY, LastOwners, PartitionOwner
from topics.catalogue import CHANGELOG
from topics.epoch import Epoch

log = structlog.get_logger()

Version = tuple[int, int]
NO_ROWS: Version = (-1, -1)
"""The version of a store that has no rows of a partition."""


class RowsElsewhere(CannotOpenYet):
    """Partitions were learned last by another worker, or in another data directory."""

    def __init__(self, refused: Mapping[int, str]) -> None:
        """`refused`: why, by partition."""
        self.partitions = tuple(refused)
        super().__init__(
            f"the rows of {', '.join(f'partition {number}' for number in refused)}",
            "; ".join(refused.values())
            + ". Until then all partitions that are assigned to this worker wait. Start that "
            "worker on its directory, or restore a backup (docs/how-to/recover.md); or give up "
            "what was learned, with a command for each of these partitions: "
            f"redis-cli HDEL {KEY} PARTITION",
        )


def is_whole(held: Version, last: PartitionOwner, worker: str) -> bool:
    """Return whether a store of version `held` has all that the last owner learned.

    `worker`: whose store it is. Of the same version another worker's store has all of it only if
    the last owner has given the partition back: until then it may learn more than it noted.
    """
    return held > last.version or (
        held == last.version and (last.worker == worker or not last.open)
    )


class Adoption:
    """Adopts partitions for one worker, and notes in Redis which it owns and how far they are."""

    def __init__(
        self, services: PartitionServices, owners: LastOwners, worker: str, data: Path
    ) -> None:
        """`worker`: the name of this instance. `data`: its own data directory."""
        self._services, self._store, self._owners = services, services.store, owners
        self._worker, self._data = worker, data

    async def adopt(self, partitions: Iterable[int], *, same_count: bool) -> None:
        """Adopt rows of an older log epoch after recovery, which left them where they matter.

        `same_count`: see `migrate_rows_to_epoch`, whose errors are raised. Raises `CannotOpenYet`
        where the rows are elsewhere, or Redis is needed and away.
        """
        epoch, refused = self._services.epoch, dict[int, str]()
        wanted = sorted(partitions)
        new = [each for each in wanted if self._held(each)[0] < epoch.number]
        last = await self._read(needed=bool(new))
        for partition in wanted:
            if partition in new and (why := self._why_refused(partition, last.get(partition))):
                refused[partition] = why
            else:
                await self._migrate(partition, same_count=same_count)
        await self._give(last, set(wanted), same_count=same_count)
        if refused:
            raise RowsElsewhere(refused)
        await self.keep(wanted)

    async def keep(self, partitions: Iterable[int]) -> None:
        """Note how far the partitions are that this worker has now; later if Redis is away."""
        with suppress(ConnectionError):
            await self._note(partitions, still=True)

    async def give_back(self, partitions: Iterable[int]) -> None:
        """Note that this worker learns nothing more of these partitions."""
        with suppress(ConnectionError):
            await self._note(partitions, still=False)

    async def close(self) -> None:
        """Disconnect."""
        await self._owners.close()

    async def _note(self, partitions: Iterable[int], *, still: bool) -> None:
        epoch = self._services.epoch
        held = {each: self._held(each) for each in sorted(partitions)}
        notes = {
            number: PartitionOwner(*held_here, epoch.partitions, self._worker, still)
            for number, held_here in held.items()
            if held_here[0] == epoch.number
        }
        await self._owners.note(notes)

    def _held(self, partition: int) -> Version:
        own = self._store.get_row(partition, PARTITION_KEY)
        return NO_ROWS if own is None else version(own)

    async def _read(self, *, needed: bool) -> Mapping[int, PartitionOwner]:
        """Return the last owners, also those that adopted a partition since recovery read it."""
        epoch = self._services.epoch
        try:
            found = await self._owners.read()
        except ConnectionError as error:
            if needed:
                raise CannotOpenYet("redis", str(error)) from error
            return {}
        return {number: each for number, each in found.items() if _concerns(each, epoch)}

    def _why_refused(self, partition: int, last: PartitionOwner | None) -> str | None:
        held = self._held(partition)
        if last is None:
            if held != NO_ROWS:
                log.warning("epoch_migration.unknown_owner", partition=partition, held=held)
            return None
        if is_whole(held, last, self._worker):
            return None
        if self._services.epoch.volatile and not self._may_be_given(partition, last):
            # With `up` there is one data directory, and what it has is all that there is.
            log.warning(
                "epoch_migration.rows_lost", partition=partition, held=held, noted=last.version
            )
            return None
        return _refusal(partition, held, last, self._worker)

    def _may_be_given(self, partition: int, last: PartitionOwner) -> bool:
        """Return whether another worker has rows of the partition, and runs beside this one."""
        beside = self._data.with_name(f"thresholds-{last.worker}")
        table = self._store.partition_path(partition).name
        return last.worker != self._worker and _is_in_use(beside) and any(beside.rglob(table))

    def _is_given(self, partition: int, last: PartitionOwner) -> bool:
        if self._services.epoch.volatile and last.worker == self._worker:
            return True  # as `_why_refused`: all that there is
        return is_whole(self._held(partition), last, self._worker)

    async def _migrate(self, partition: int, *, same_count: bool) -> None:
        services = self._services
        await migrate_rows_to_epoch(
            self._store, services.producer, partition, services.epoch, same_count=same_count
        )

    async def _give(
        self, last: Mapping[int, PartitionOwner], own: set[int], *, same_count: bool
    ) -> None:
        """Write to the new changelog the rows of partitions that this worker is not assigned."""
        services, epoch = self._services, self._services.epoch.number
        # Those that no worker has adopted: other tables are not opened.
        others = [
            number
            for number, each in last.items()
            if each.epoch < epoch and number not in own and self._store.has_table(number)
        ]
        mine = [n for n in others if self._is_given(n, last[n])]
        if mine:
            state = await services.clients.topic_state(services.kafka, CHANGELOG.name)
            there = await adopted_partitions(epoch, services.clients, services.kafka, state, mine)
            for number in (each for each in mine if each not in there):
                await self._migrate(number, same_count=same_count)
                await self.give_back([number])
        for number in others:
            self._store.release(number)


def _concerns(last: PartitionOwner, epoch: Epoch) -> bool:
    return last.epoch <= epoch.number and last.partitions == epoch.partitions


def _is_in_use(data: Path) -> bool:
    """Return whether a worker has the lock of a data directory."""
    try:
        with (data / "worker.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _refusal(partition: int, held: Version, last: PartitionOwner, worker: str) -> str:
    here = (
        "has none" if held == NO_ROWS else f"has them up to offset {held[1]} of log epoch {held[0]}"
    )
    where = (
        "another data directory of this instance" if last.worker == worker else "its data directory"
    )
    return (
        f"partition {partition} was learned last by the threshold worker of instance "
        f"{last.worker!r}, up to offset {last.offset} of log epoch {last.epoch}; the rows are in "
        f"{where}, and this one {here}"
    )
