"""A new log, and stores of which only some are whole: nothing is learned from a part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import faust
import pytest

from agents.producer import BatchProducer
from agents.thresholds import epoch_migration, recovery
from agents.thresholds.adoption import Adoption, CopyNotWhole
from agents.thresholds.clients import Clients
from agents.thresholds.store import ContextStore, new_table
from processing.state.rows import (
    PARTITION_KEY,
    TaskStateRow,
    deleted,
    encode_partition,
    spool_key,
    with_version,
)
from sinks.redis.last_owners import LastOwner, LastOwners, forget_last_owners
from topics.catalogue import CONTEXTS_TABLE, Topic
from topics.epoch import Epoch
from topics.kafka.admin import create_topics

pytestmark = pytest.mark.integration

PARTITIONS = 2
OLD, NEW = Epoch(1, PARTITIONS), Epoch(2, PARTITIONS)


def rows(epoch: int, applied: int, *keys: str) -> dict[bytes, bytes]:
    """A partition's rows, of which each key is of the offset applied last."""
    found = {spool_key("t", "w", key): with_version(deleted(0, 0), epoch, applied) for key in keys}
    return {**found, PARTITION_KEY: encode_partition(TaskStateRow(), epoch, applied)}


Workers = Callable[[str, dict[int, dict[bytes, bytes]]], "Worker"]


class Worker:
    """One worker's store of the old epoch, opened under the new one."""

    def __init__(
        self, data: Path, held: dict[int, dict[bytes, bytes]], kafka: str, redis: str
    ) -> None:
        self.kafka, self.redis = kafka, redis
        app = faust.App("headstart-t", datadir=data, store="memory://", autodiscover=False)
        self.store: ContextStore = new_table(app, CONTEXTS_TABLE, PARTITIONS, OLD.number).data
        for partition, each in held.items():
            self.store.write_rows(partition, each.items(), len(each) - 1)
        self.store.epoch = NEW.number

    def restore(self, *assigned: int) -> None:
        async def run() -> None:
            producer = BatchProducer(self.kafka)
            adoption = Adoption(self.store, Clients(), self.kafka, self.redis, NEW)
            await producer.start()
            try:
                await adoption.restore(producer, assigned)
            finally:
                await producer.stop()
                await adoption.close()

        asyncio.run(run())

    def rows(self, partition: int) -> dict[bytes, bytes]:
        return dict(self.store.scan(partition))


@pytest.fixture
def workers(
    kafka: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workers]:
    """Workers whose changelog is a new topic, and of which Redis notes what the test says."""
    changelog = Topic(f"test.{uuid4().hex}", "", "", partitioned=True, cleanup="compact")
    asyncio.run(create_topics(kafka, PARTITIONS, topics=[changelog]))
    for each in (recovery, epoch_migration):
        monkeypatch.setattr(each, "CHANGELOG", changelog)
    asyncio.run(forget_last_owners(redis_url))
    yield lambda name, held: Worker(tmp_path / name, held, kafka, redis_url)
    asyncio.run(forget_last_owners(redis_url))


def note(redis_url: str, partition: int, owner: LastOwner) -> None:
    async def run() -> None:
        owners = LastOwners(redis_url)
        await owners.note(partition, owner)
        await owners.close()

    asyncio.run(run())


def migrated(of: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: with_version(row, NEW.number, -1) for key, row in of.items()}


FIRST = rows(1, 40, "a", "b")
"""Of a worker that lost the partition at offset 40."""
LAST = rows(1, 90, "b", "c")
"""Of the one that had it then; `a` has been deleted since."""


def test_what_an_earlier_owner_has_is_refused_until_the_last_one_hands_it_over(
    workers: Workers, redis_url: str
) -> None:
    note(redis_url, 0, LastOwner(1, 41, PARTITIONS, "b on host-b"))
    note(redis_url, 1, LastOwner(1, 7, PARTITIONS, "a on host-a"))
    first = workers("a", {0: FIRST, 1: rows(1, 9, "x")})
    for _ in range(2):
        with pytest.raises(CopyNotWhole, match=r"partition 0.*b on host-b.*up to offset 41"):
            first.restore(0, 1)
    assert first.rows(0) == FIRST, "nothing was changed"
    assert first.rows(1) == migrated(rows(1, 9, "x")), "of this one it is the last owner"

    last = workers("b", {0: LAST, 1: rows(1, 3, "y")})
    last.restore(1)  # it hands over partition 0, which it does not own now
    assert last.rows(1) == migrated(rows(1, 9, "x"))
    first.restore(0, 1)
    assert first.rows(0) == migrated(LAST), "of the earlier copy nothing is left"


def test_an_empty_store_does_not_begin_anew_what_another_has_learned(
    workers: Workers, redis_url: str
) -> None:
    note(redis_url, 0, LastOwner(1, 41, PARTITIONS, "b on host-b"))
    with pytest.raises(CopyNotWhole, match="this worker has nothing"):
        workers("new", {}).restore(0)
    asyncio.run(forget_last_owners(redis_url))
    empty = workers("new-2", {})
    empty.restore(0)
    assert empty.rows(0) == {}


@pytest.mark.parametrize(
    "owner", [None, LastOwner(1, 41, 5, "of five partitions"), LastOwner(2, 0, PARTITIONS, "now")]
)
def test_without_a_note_of_that_log_the_owner_adopts_its_own(
    workers: Workers, redis_url: str, owner: LastOwner | None
) -> None:
    if owner is not None:
        note(redis_url, 0, owner)
    first = workers("a", {0: FIRST})
    first.restore(0)
    assert first.rows(0) == migrated(FIRST)


def test_a_note_is_replaced_by_later_ones_only(workers: Workers, redis_url: str) -> None:
    async def run() -> dict[int, LastOwner]:
        owners = LastOwners(redis_url)
        for epoch, offset, name in ((1, 5, "a"), (1, 4, "late"), (2, 0, "b"), (1, 99, "late")):
            await owners.note(0, LastOwner(epoch, offset, PARTITIONS, name))
        found = await owners.read()
        await owners.close()
        return dict(found)

    assert asyncio.run(run()) == {0: LastOwner(2, 0, PARTITIONS, "b")}
