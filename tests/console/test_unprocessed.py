"""`topics delete` keeps events that no worker has processed, and `verify` says how many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import psycopg
import pytest
from aiokafka import AIOKafkaProducer

from deploy.local import Addresses, Stack, StackConfig
from deploy.system import prepare
from headstart.kafka_producer import start_producer
from processing.state.rows import PARTITION_KEY, TaskStateRow, encode_partition
from replay.log.unprocessed import Unprocessed, count_unprocessed
from tests.processes import Ended
from topics.catalogue import CHANGELOG, EPISODES_GROUP, EVENTS, THRESHOLDS_GROUP
from topics.control.messages import Clock, Reset, control_records
from topics.epoch import read_epoch
from topics.kafka.admin import partition_counts

pytestmark = pytest.mark.integration

AT = 1_760_000_000_000


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """Services whose log is deleted here, without workers."""
    with Stack(StackConfig(data=tmp_path_factory.mktemp("deleted"))) as stack:
        asyncio.run(prepare(stack.addresses, 2))
        yield stack.addresses


async def append(kafka: str) -> None:
    """Append two frames with three events, a reset by an operator, and a clock record."""
    producer: AIOKafkaProducer = await start_producer(kafka)
    try:
        frames: list[list[dict[str, str]]] = [[{}, {}], [{}]]
        for events in frames:
            await producer.send_and_wait(EVENTS.name, orjson.dumps(events), b"a\x1fb", partition=1)
        for control in (Reset("r1", AT, "*"), Clock("c1", AT)):
            (sent,) = control_records(control, [1], None)
            await producer.send_and_wait(
                EVENTS.name, sent.value, sent.key, partition=1, headers=list(sent.headers)
            )
    finally:
        await producer.stop()


async def process(at: Addresses, *, episodes: int, thresholds: int) -> None:
    """Store next offsets of partition 1 as the workers do."""
    epoch = (await read_epoch(at.kafka)).number
    async with await psycopg.AsyncConnection.connect(at.postgres) as connection:
        await connection.execute(
            "INSERT INTO sink_offsets (consumer, topic, epoch, partition, next_offset)"
            " VALUES (%s, %s, %s, 1, %s) ON CONFLICT (consumer, topic, epoch, partition)"
            " DO UPDATE SET next_offset = excluded.next_offset",
            (EPISODES_GROUP, EVENTS.name, epoch, episodes),
        )
    row = encode_partition(TaskStateRow(), epoch, thresholds - 1)
    producer: AIOKafkaProducer = await start_producer(at.kafka)
    try:
        await producer.send_and_wait(CHANGELOG.name, row, PARTITION_KEY, partition=1)
    finally:
        await producer.stop()


def test_the_log_is_deleted_only_once_all_of_it_is_processed(
    own: Addresses, run: Callable[..., Ended], tmp_path: Path
) -> None:
    def counted() -> Unprocessed:
        return asyncio.run(count_unprocessed(own.kafka, own.postgres))

    where = ("--kafka", own.kafka, "--postgres", own.postgres, "--data", str(tmp_path))
    assert counted() == Unprocessed()
    caught_up = run("verify", "--caught-up", *where, "--redis", own.redis)
    assert caught_up.returncode == 0, caught_up.stderr
    assert "everything agrees" in caught_up.stderr
    asyncio.run(append(own.kafka))
    assert counted() == Unprocessed({EPISODES_GROUP: 3, THRESHOLDS_GROUP: 4})
    compared = ("verify", *where, "--redis", own.redis)
    verified = run(*compared, "--json")
    assert verified.returncode == 0, verified.stderr
    found = json.loads(verified.stdout)
    assert found["left"] == {EPISODES_GROUP: 3, THRESHOLDS_GROUP: 4}
    assert (found["ok"], found["left_more"], found["events"]) == (True, False, 0)
    behind = run(*compared, "--caught-up")
    assert behind.returncode == 1
    assert "Not compared: 3 events that headstart-episodes has not" in behind.stderr
    asyncio.run(process(own, episodes=4, thresholds=1))
    assert counted() == Unprocessed({THRESHOLDS_GROUP: 2})

    refused = run("topics", "delete", "--yes", *where)
    assert refused.returncode == 1
    assert "2 events that headstart-thresholds has not processed" in refused.stderr
    assert "--discard-unprocessed" in refused.stderr
    assert asyncio.run(partition_counts(own.kafka, [EVENTS.name])) == {EVENTS.name: 2}

    # The clock record behind them is nothing to lose.
    asyncio.run(process(own, episodes=2, thresholds=3))
    assert counted() == Unprocessed()
    deleted = run("topics", "delete", "--yes", "--json", *where)
    assert deleted.returncode == 0, deleted.stderr
    assert EVENTS.name in json.loads(deleted.stdout)["deleted"]


def test_events_are_discarded_only_by_an_option_of_its_own(
    own: Addresses, run: Callable[..., Ended], tmp_path: Path
) -> None:
    where = ("--kafka", own.kafka, "--postgres", own.postgres, "--data", str(tmp_path))
    asyncio.run(prepare(own, 2))
    asyncio.run(append(own.kafka))
    assert run("topics", "delete", "--yes", *where).returncode == 1
    deleted = run("topics", "delete", "--yes", "--discard-unprocessed", *where)
    assert deleted.returncode == 0, deleted.stderr
    assert asyncio.run(partition_counts(own.kafka, [EVENTS.name])) == {}
