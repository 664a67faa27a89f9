"""Restores partitions of the table; in a new log epoch, from the store that has all of it.

A new log has an empty changelog. What was learned in a partition is then only in local stores, and
only its last owner's is whole: others end where they lost the partition. So each worker appends the
rows of every partition of which its store is whole to the new changelog, also of those that it does
not own now. A partition of which no worker has done so is refused by the name of its last owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import structlog

from agents.producer import BatchProducer
from agents.thresholds.clients import Clients
from agents.thresholds.epoch_migration import LaterEpoch, append_rows
from agents.thresholds.partition import OwnedPartition
from agents.thresholds.recovery import Recovered, recover
from agents.thresholds.store import ContextStore
from processing.state.rows import PARTITION_KEY, version
from sinks.redis.last_owners import LastOwner, LastOwners
from topics.epoch import Epoch

log = structlog.get_logger()


class CopyNotWhole(RuntimeError):
    """The log is a new one, and this worker's store lacks what another worker learned last."""

    def __init__(self, partition: int, held: tuple[int, int] | None, last: LastOwner) -> None:
        ours = f"up to offset {held[1]} of log epoch {held[0]}" if held else "nothing"
        super().__init__(
            f"the log is a new one, and of partition {partition} this worker has {ours}, while "
            f"worker {last.name} had learned up to offset {last.offset} of log epoch {last.epoch} "
            "or further. Start that worker with its data directory: it hands over what was "
            "learned, and this one goes on. Nothing was changed. If its directory is lost, see "
            "docs/how-to/recover.md#a-new-log-and-a-lost-worker"
        )


class Adoption:
    """Restores what is assigned to one worker; in a new log epoch it offers its own rows first."""

    def __init__(
        self, store: ContextStore, clients: Clients, kafka: str, redis: str, epoch: Epoch
    ) -> None:
        self._store, self._clients, self._kafka, self._epoch = store, clients, kafka, epoch
        self._last_owners: LastOwners = clients.last_owners(redis)
        self._offered = False
        self._unnoted: dict[int, tuple[int, int]] = {}
        """What Redis is still to be told of partitions in which this worker has learned."""
        self.same_count = True
        """Whether the local store was created with as many partitions as the topic has."""

    async def close(self) -> None:
        """Disconnect from Redis."""
        await self._last_owners.close()

    async def restore(
        self, producer: BatchProducer, assigned: Collection[int]
    ) -> Mapping[int, Recovered]:
        """Bring the assigned partitions up to the end of the changelog.

        Raises `BrokerUnreachable`, `TopicsMissing`, `RedisUnreachable` where rows of an older epoch
        must be compared with the last owner's, `CopyNotWhole`, `LaterEpoch` and `OtherPartitions`.
        """
        others = set() if self._offered or not self.same_count else self._of_older_epoch()
        found = dict(await self._recover({*assigned, *others}))
        old = {n for n in (*assigned, *others) if self._is_old(n)}
        owners = await self._read_owners(required=bool(old))
        whole = [n for n in sorted(old) if self._may_offer(n, owners.get(n), n in assigned)]
        for partition in whole:
            await append_rows(
                self._store, producer, partition, self._epoch, same_count=self.same_count
            )
        found |= await self._recover(whole)
        for partition in assigned:
            self._require_adopted(partition, owners.get(partition))
        self._offered = True
        return {partition: found[partition] for partition in assigned}

    async def note_owner(self, owned: Iterable[OwnedPartition], name: str) -> None:
        """Note this worker as the last owner of partitions in which it has learned.

        What Redis does not take now it is told at the next call, also if the partition is another's
        by then: a later owner's note is not replaced.
        """
        for each in owned:
            learned = not each.noted and each.has_learned()
            held = self.held(each.partition)
            if held is not None and (learned or each.note_lost):
                self._unnoted[each.partition] = held
                each.noted, each.note_lost = each.noted or learned, False
        for partition, held in sorted(self._unnoted.items()):
            try:
                owner = LastOwner(*held, self._epoch.partitions, name)
                await self._last_owners.note(partition, owner)
            except ConnectionError:
                return
            if self._unnoted.get(partition) == held:
                del self._unnoted[partition]

    def held(self, partition: int) -> tuple[int, int] | None:
        """Return the log epoch and offset that the local store has of a partition."""
        own = self._store.get_row(partition, PARTITION_KEY)
        return None if own is None else version(own)

    async def _recover(self, partitions: Iterable[int]) -> Mapping[int, Recovered]:
        wanted = sorted(partitions)
        if not wanted:
            return {}
        return await recover(self._store, self._clients, self._kafka, wanted)

    def _of_older_epoch(self) -> set[int]:
        return {
            n
            for n in self._store.local_partitions()
            if n < self._epoch.partitions and self._is_old(n)
        }

    def _is_old(self, partition: int) -> bool:
        held = self.held(partition)
        return held is not None and held[0] < self._epoch.number

    async def _read_owners(self, *, required: bool) -> Mapping[int, LastOwner]:
        """Return the last owners that are of this number of partitions and an older epoch."""
        try:
            found = await self._last_owners.read()
        except ConnectionError:
            if required:
                raise
            return {}  # learning needs no Redis
        return {
            n: each
            for n, each in found.items()
            if each.partitions == self._epoch.partitions and each.epoch < self._epoch.number
        }

    def _may_offer(self, partition: int, last: LastOwner | None, assigned: bool) -> bool:
        """Return whether the store's rows are to be appended: it is whole, as far as is known."""
        held = self.held(partition)
        if last is None or held is None:
            return assigned  # no owner was noted, by an earlier version or in another Redis
        return held >= last.version

    def _require_adopted(self, partition: int, last: LastOwner | None) -> None:
        held = self.held(partition)
        if held is not None and held[0] > self._epoch.number:
            raise LaterEpoch(held[0], self._epoch.number)
        if held is not None and held[0] == self._epoch.number:
            return
        if last is not None:
            raise CopyNotWhole(partition, held, last)
