"""Publishes snapshots of models to Redis; what fails is tried again, and learning goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import structlog

from agents.health.metrics import WorkerCounts
from agents.predictions.owned_models import OwnedModels
from headstart.keys import key_names
from processing.predictions.entries import ModelEntry
from sinks.redis.models import ModelPublisher, Version

log = structlog.get_logger()

PUBLISH_S: Final = 5.0
"""Between two snapshots of one model, at least."""
CHECK_S: Final = 30.0
"""Between two comparisons of Redis with what was published."""
_SHARE: Final = 3.0
"""Snapshots take at most a quarter of the time: after each, so many times as long is waited."""
_COMPARED: Final = 200


class SnapshotServing:
    """Keeps Redis as new as the models of the owned partitions."""

    def __init__(
        self,
        publisher: ModelPublisher,
        owned: Callable[[], Iterable[OwnedModels]],
        epoch: int,
        counts: WorkerCounts,
        now_s: Callable[[], float],
        evict: Callable[[], Awaitable[None]],
        ends: Callable[[], Awaitable[Mapping[int, int]]],
    ) -> None:
        """`owned`: returns the partitions that this worker has now. `now_s`: monotonic.

        `evict`: called under the lock after a model was used, which may have been loaded for it.
        `ends`: returns the end of each partition of the log.
        """
        self._ends = ends
        self._wrong: dict[bytes, Version] = {}
        """Versions in Redis of records that the log does not have."""
        self._publisher, self._owned, self._epoch = publisher, owned, epoch
        self._counts, self._now_s, self._evict = counts, now_s, evict
        self._served: dict[bytes, Version] = {}
        """What Redis has, as far as is known, of owned models."""
        self._published_s: dict[bytes, float] = {}
        self._checked_s = self._not_before_s = float("-inf")
        self.behind = False
        """Whether Redis did not answer when it was last asked."""

    async def work(self, lock: asyncio.Lock) -> None:
        """Publish what is due, one model at a time; `lock` keeps models, and their list, as they
        are meanwhile."""
        try:
            await self._check(lock)
            while self._now_s() >= self._not_before_s:
                async with lock:
                    found = self._next()
                    if found is None:
                        break
                    owned, entry = found
                    begun = self._now_s()
                    version, reset = (self._epoch, entry.offset), entry.reset
                    model = await asyncio.to_thread(owned.models.model, entry)
                    snapshot = await asyncio.to_thread(model.snapshot)
                    await self._evict()
                    self._not_before_s = self._now_s() + _SHARE * (self._now_s() - begun)
                await self._publish(entry, version, reset, snapshot)
            self._note_answer(None)
        except ConnectionError as error:
            self._note_answer(error)

    async def _publish(
        self, entry: ModelEntry, version: Version, reset: Version, snapshot: bytes
    ) -> None:
        wrong = self._wrong.pop(entry.key, None)
        await self._publisher.publish(*key_names(entry.key), version, reset, snapshot, wrong=wrong)
        self._served[entry.key] = version
        self._published_s[entry.key] = self._now_s()
        self._counts.published += 1

    def _next(self) -> tuple[OwnedModels, ModelEntry] | None:
        """Return a model that is due, the one that has waited longest; None if none is."""
        due = [
            (self._published_s.get(entry.key, float("-inf")), number, owned, entry)
            for number, (owned, entry) in enumerate(self._waiting())
        ]
        self._counts.waiting = len(due)
        if not due:
            return None
        at, _number, owned, entry = min(due)
        return (owned, entry) if self._now_s() >= at + PUBLISH_S else None

    def _waiting(self) -> Iterable[tuple[OwnedModels, ModelEntry]]:
        for owned in self._owned():
            for entry in owned.models.entries.values():
                if self._served.get(entry.key, (0, -2)) < (self._epoch, entry.offset):
                    yield owned, entry

    async def _check(self, lock: asyncio.Lock) -> None:
        """Notice what Redis has lost, or has of an earlier owner. Raises `RedisUnreachable`."""
        now_s = self._now_s()
        if now_s < self._checked_s + CHECK_S:
            return
        async with lock:
            entries = [each for owned in self._owned() for each in owned.models.entries]
        found: dict[bytes, Version] = {}
        for begin in range(0, len(entries), _COMPARED):
            some = entries[begin : begin + _COMPARED]
            versions = await self._publisher.versions([key_names(each) for each in some])
            found |= {k: v for k, v in zip(some, versions, strict=True) if v is not None}
        await self._find_wrong(found, lock)
        lost = self._lost(found)
        if lost:
            log.info("models.republished", models=lost)
        self._served, self._checked_s = found, now_s
        self._published_s = {k: at for k, at in self._published_s.items() if k in found}

    async def _find_wrong(self, found: dict[bytes, Version], lock: asyncio.Lock) -> None:
        """Have versions replaced that are ahead of the log; removes them from `found`.

        No newer snapshot would ever replace them. Those of a later epoch are of another
        installation, or of a log that was lost: they are left alone, until the model changes and
        they are gone.
        """
        async with lock:
            ahead = {
                entry.key: (owned.tp.partition, entry.offset)
                for owned in self._owned() for entry in owned.models.entries.values()
                if found.get(entry.key, (0, -2)) > (self._epoch, entry.offset)
            }  # fmt: skip
        ends = await self._ends() if ahead else {}
        for key, (partition, own) in ahead.items():
            (epoch, offset), (tenant, workflow_type) = found[key], key_names(key)
            if epoch == self._epoch and offset < ends[partition]:
                continue  # a restarted worker comes there
            log.warning("models.redis_ahead", tenant=tenant, workflow_type=workflow_type,
                        version=f"{epoch}:{offset}", replaced=epoch == self._epoch)  # fmt: skip
            if epoch == self._epoch:
                self._wrong[key] = found.pop(key)
            else:
                found[key] = self._epoch, own

    def _lost(self, found: Mapping[bytes, Version]) -> int:
        return sum(version > found.get(key, (0, -2)) for key, version in self._served.items())

    def recheck(self) -> None:
        """Compare with Redis at the next call: the owned partitions have changed."""
        self._checked_s = float("-inf")
        self._served.clear()

    def _note_answer(self, error: ConnectionError | None) -> None:
        if error is not None:
            self._counts.redis_failures += 1
            if not self.behind:
                log.warning("redis.unavailable", error=str(error))
            self._checked_s = float("-inf")  # it may come back empty
        self.behind = error is not None

    async def close(self) -> None:
        """Disconnect."""
        await self._publisher.close()
