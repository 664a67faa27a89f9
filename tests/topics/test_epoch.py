"""The log epoch: minted once per life of the log, larger than any that is stored anywhere."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from functools import partial
from uuid import uuid4

import msgspec
import pytest

from headstart.kafka_producer import start_producer
from topics import epoch as epoch_module
from topics.catalogue import Topic
from topics.epoch import (
    Epoch,
    EpochUnreadable,
    LogInRecreation,
    PartitionsChanged,
    PartitionsDiffer,
    Recreation,
    ensure_topics,
    read_epoch,
    read_log_state,
    write_log_state,
)
from topics.kafka.admin import (
    BrokerUnreachable,
    TopicsMissing,
    create_topics,
    delete_topics,
    partition_counts,
    recreate_mismatched,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> tuple[Topic, Topic]:
    """Topics of this test's own in the place of the catalogue's, which the session shares."""
    name = uuid4().hex
    events = Topic(f"test.{name}.events", "", "", partitioned=True, cleanup="compact")
    epochs = Topic(f"test.{name}.epochs", "", "", partitioned=False, cleanup="compact")
    monkeypatch.setattr(epoch_module, "EVENTS", events)
    monkeypatch.setattr(epoch_module, "EPOCHS", epochs)
    monkeypatch.setattr(
        epoch_module, "create_topics", partial(create_topics, topics=(events, epochs))
    )
    monkeypatch.setattr(
        epoch_module, "recreate_mismatched", partial(recreate_mismatched, topics=(events, epochs))
    )
    return events, epochs


async def write(kafka: str, topic: Topic, *epochs: Epoch) -> None:
    producer = await start_producer(kafka)
    try:
        for epoch in epochs:
            await producer.send_and_wait(topic.name, msgspec.json.encode(epoch), key=b"epoch")
    finally:
        await producer.stop()


def test_the_first_run_mints_and_the_second_keeps(kafka: str, own: tuple[Topic, Topic]) -> None:
    async def run() -> None:
        created, epoch = await ensure_topics(kafka, partitions=3)
        assert created == [topic.name for topic in own]
        assert epoch.partitions == 3
        assert epoch.number >= time.time() - 60
        assert await read_epoch(kafka) == epoch
        beyond = epoch.number + 1_000_000
        assert await ensure_topics(kafka, partitions=3, known=[beyond]) == ([], epoch)

    asyncio.run(run())


def test_an_epoch_marks_a_log_in_memory_and_reads_as_before(
    kafka: str, own: tuple[Topic, Topic]
) -> None:
    async def run() -> None:
        _created, epoch = await ensure_topics(kafka, partitions=2)  # by `topics create`
        assert not epoch.volatile
        marked = msgspec.structs.replace(epoch, volatile=True)
        assert await ensure_topics(kafka, partitions=2, volatile=True) == ([], marked)
        assert await ensure_topics(kafka, partitions=2) == ([], marked)
        assert await read_epoch(kafka) == marked

    asyncio.run(run())
    assert msgspec.json.encode(Epoch(7, 2)) == b'{"number":7,"partitions":2}'


def test_a_new_epoch_is_larger_than_every_known_one(kafka: str, own: tuple[Topic, Topic]) -> None:
    known = int(time.time()) + 5_000_000
    _created, epoch = asyncio.run(ensure_topics(kafka, partitions=1, known=[3, known, 0]))
    assert epoch.number == known + 1


def test_recreated_events_begin_a_new_epoch_and_the_last_record_counts(
    kafka: str, own: tuple[Topic, Topic]
) -> None:
    events, epochs = own

    async def run() -> None:
        await create_topics(kafka, 2, topics=[epochs])  # as if `events` had been deleted
        old = Epoch(number=7, partitions=2)
        await write(kafka, epochs, Epoch(number=6, partitions=1), old)
        created, epoch = await ensure_topics(kafka, partitions=2, known=[])
        assert created == [events.name]
        assert epoch.number > old.number
        assert await read_epoch(kafka) == epoch

    asyncio.run(run())


def test_invalid_epochs_are_skipped(kafka: str, own: tuple[Topic, Topic]) -> None:
    async def run() -> None:
        _created, epoch = await ensure_topics(kafka, partitions=2)
        producer = await start_producer(kafka)
        try:
            for value in (b"{", None, b'{"number":"x"}'):
                await producer.send_and_wait(own[1].name, value, key=None if value else b"epoch")
        finally:
            await producer.stop()
        assert await read_epoch(kafka) == epoch

    asyncio.run(run())


def test_an_unreadable_epoch_is_not_taken_for_a_new_log(
    kafka: str, own: tuple[Topic, Topic]
) -> None:
    async def run() -> None:
        await create_topics(kafka, 2, topics=own)
        producer = await start_producer(kafka)
        try:
            await producer.send_and_wait(own[1].name, b"{", key=b"epoch")
        finally:
            await producer.stop()
        for act in (read_epoch(kafka), ensure_topics(kafka, partitions=2)):
            with pytest.raises(EpochUnreadable, match=r"none of the records .* is a log epoch"):
                await act

    asyncio.run(run())


def test_while_the_log_is_recreated_nothing_is_created_and_no_epoch_is_read(
    kafka: str, own: tuple[Topic, Topic]
) -> None:
    async def run() -> None:
        _created, epoch = await ensure_topics(kafka, partitions=2)
        assert await read_log_state(kafka) == epoch
        recreation = Recreation("id", epoch, epoch.number + 1, "/saved")
        await write_log_state(kafka, recreation)
        await delete_topics(kafka, [own[0].name])
        for act in (read_epoch(kafka), ensure_topics(kafka, partitions=2)):
            with pytest.raises(LogInRecreation, match="`headstart topics recreate --yes`"):
                await act
        assert await read_log_state(kafka) == recreation
        assert await partition_counts(kafka, [each.name for each in own]) == {own[1].name: 1}

    asyncio.run(run())


def test_an_interrupted_creation_is_completed(kafka: str, own: tuple[Topic, Topic]) -> None:
    async def run() -> None:
        await create_topics(kafka, 3, topics=own)  # and then it was killed
        with pytest.raises(TopicsMissing):
            await read_epoch(kafka)
        created, epoch = await ensure_topics(kafka, partitions=5)
        assert (created, epoch.partitions) == ([], 3)  # of the events that there are
        assert await read_epoch(kafka) == epoch

    asyncio.run(run())


def test_another_number_of_partitions_is_refused(kafka: str, own: tuple[Topic, Topic]) -> None:
    events, epochs = own

    async def run() -> None:
        await create_topics(kafka, 3, topics=own)
        await write(kafka, epochs, Epoch(number=9, partitions=4))
        for ask in (read_epoch(kafka), ensure_topics(kafka, partitions=3)):
            with pytest.raises(PartitionsChanged) as caught:
                await ask
            message = str(caught.value)
            assert f"{events.name} has 3 partitions" in message
            assert "created for 4" in message
            assert "`headstart thresholds export FILE`" in message
            assert "delete" not in message.replace("nothing has to be deleted", "")

    asyncio.run(run())


def test_topics_auto_created_in_a_new_volatile_log_are_recreated(
    kafka: str, own: tuple[Topic, Topic]
) -> None:
    """The embedded broker creates a topic that is asked for, with four partitions."""
    events, epochs = own

    async def run() -> None:
        await create_topics(kafka, 4, topics=[events])
        await create_topics(kafka, 4, topics=[replace(epochs, partitioned=True)])
        _created, epoch = await ensure_topics(kafka, partitions=8, volatile=True, exact=True)
        assert epoch.partitions == 8
        assert await read_epoch(kafka) == epoch
        assert await partition_counts(kafka, [events.name, epochs.name]) == {
            events.name: 8, epochs.name: 1,
        }  # fmt: skip
        assert await ensure_topics(kafka, partitions=4, volatile=True) == ([], epoch)  # it is begun

    asyncio.run(run())


def test_a_number_that_was_asked_for_is_never_silently_another(
    kafka: str, own: tuple[Topic, Topic]
) -> None:
    events, epochs = own

    async def run() -> None:
        await create_topics(kafka, 3, topics=[events])  # and no epoch: by the broker itself
        with pytest.raises(PartitionsDiffer, match="has 3 partitions, and 5 were asked for"):
            await ensure_topics(kafka, partitions=5, exact=True)
        assert await partition_counts(kafka, [events.name, epochs.name]) == {events.name: 3}
        _created, epoch = await ensure_topics(kafka, partitions=3, exact=True)
        with pytest.raises(PartitionsDiffer, match="--partitions 3"):
            await ensure_topics(kafka, partitions=5, exact=True)
        assert await ensure_topics(kafka, partitions=5) == ([], epoch)

    asyncio.run(run())


def test_missing_topics_are_named(kafka: str, own: tuple[Topic, Topic]) -> None:
    events, epochs = own
    with pytest.raises(TopicsMissing) as caught:
        asyncio.run(read_epoch(kafka))
    assert events.name in str(caught.value)
    assert epochs.name in str(caught.value)


def test_no_broker_is_named_with_its_address() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{listener.getsockname()[1]}"
    for ask in (read_epoch(closed), ensure_topics(closed, partitions=1)):
        with pytest.raises(BrokerUnreachable, match=closed):
            asyncio.run(ask)
