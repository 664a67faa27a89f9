"""What a stranger may send to make a worker end, again at each start: it is taken in, or refused.

Every record keeps to the limits of its size; what comes of it is larger.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cramjam
import orjson
import pytest
from aiokafka.record.util import calc_crc32c

from agents.producer import MAX_BATCH_BYTES, BatchProducer
from deploy.system import System
from headstart.connections.kafka_connections import new_producer
from headstart.events.frames import MAX_FRAME_BYTES, MAX_FRAME_EVENTS
from headstart.keys import event_key
from processing.records.partitioner import partition_for
from tests.agents.record_batches import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    Batch,
    encode,
    with_section,
)
from tests.patience import PATIENCE_S
from tests.secured import everything_allowed, stack_config
from topics.catalogue import CHANGELOG, DEAD_LETTERS, EVENTS, THRESHOLDS
from topics.kafka.admin import create_topics
from topics.kafka.reader import read_records

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

PARTITIONS = 4
NOW = time.time_ns() // 1_000_000
Event = dict[str, Any]


@pytest.fixture
def send(system: System, tenant: str) -> Callable[[bytes, int], None]:
    """Produce one record to a partition, and wait until all agents have seen it."""

    async def produce(value: bytes, partition: int) -> None:
        async with new_producer(system.addresses.kafka, max_request_size=1_000_000) as producer:
            key = event_key(tenant, "refund")
            await producer.send_and_wait(EVENTS.name, value, key=key, partition=partition)

    def sent(value: bytes, partition: int) -> None:
        asyncio.run(produce(value, partition))
        assert system.drain(PATIENCE_S)

    return sent


def test_the_changelog_takes_the_largest_commit(system: System, tenant: str) -> None:
    changelog = replace(CHANGELOG, name=f"{CHANGELOG.name}-{tenant}")
    rows = [(b"k%d" % n, b"x" * 1_000_000) for n in range(20)] + [(b"last", b"x" * 900_000)]
    kafka = system.addresses.kafka

    async def send_and_read() -> list[tuple[bytes, bytes]]:
        await create_topics(kafka, 1, topics=[changelog])
        producer = BatchProducer(kafka)
        await producer.start()
        try:
            first, last = await producer.send_rows(changelog.name, 0, rows)
        finally:
            await producer.stop()
        found = read_records(kafka, changelog.name, {0: first}, {0: last + 1})
        return [(record.key, record.value) async for record in found]

    assert sum(len(key) + len(value) for key, value in rows) > 0.99 * MAX_BATCH_BYTES
    with everything_allowed(system.data):  # for a topic of the test's own
        assert asyncio.run(send_and_read()) == rows


def test_more_dead_letters_of_one_record_than_their_topic_takes_in_a_batch(
    tenant: str,
    send: Callable[[bytes, int], None],
    judged: Callable[..., Event],
    read_topic: Callable[[str], list[Any]],
) -> None:
    elsewhere = (partition_for(tenant, "refund", PARTITIONS) + 1) % PARTITIONS
    frame = [judged(tenant, note="x" * 500) for _ in range(MAX_FRAME_EVENTS)]
    value = orjson.dumps(frame)
    assert 800_000 < len(value) <= MAX_FRAME_BYTES
    before = len(read_topic(DEAD_LETTERS.name))
    send(value, elsewhere)
    found = read_topic(DEAD_LETTERS.name)[before:]
    assert [orjson.loads(letter.value) for letter in found] == frame


def believed(event: Event, key: bytes) -> bytes:
    """Return a batch whose second record has an offset delta of two billion."""
    records = tuple((at, NOW, key, orjson.dumps(event)) for at in (0, 2**31 - 1))
    return encode(Batch(records, 1, 0), 0)


def too_long(event: Event, key: bytes) -> bytes:
    """Return a compressed batch whose record declares a byte more than it has."""
    raw = encode(Batch(((0, NOW, key, orjson.dumps(event)),), 0, 0), 0)
    section = bytearray(raw[HEADER_BYTES:])
    section[0] += 2
    return with_section(raw, bytes(cramjam.zstd.compress(bytes(section))), 4)


@pytest.mark.parametrize("poison", [believed, too_long])
def test_a_batch_of_records_that_cannot_be(
    broker: str,
    tmp_path: Path,
    tenant: str,
    judged: Callable[..., Event],
    stored_at: Callable[..., Any],
    headstart: Callable[..., Any],
    poison: Callable[[Event, bytes], bytes],
) -> None:
    """Brokers look at the head of a batch, and take these."""
    events = [judged(tenant) for _ in range(4)]
    key = event_key(tenant, "refund")

    async def produce(kafka: str) -> None:
        async with new_producer(kafka) as producer:
            await producer.send_and_wait(EVENTS.name, orjson.dumps(events[0]), key=key)
            batch = producer.create_batch()
            batch.append(key=key, value=b"", timestamp=None)
            batch.close()
            batch._build = lambda: bytearray(poison(events[1], key))
            await (await producer.send_batch(batch, EVENTS.name, partition=0))
            for each in events[2:]:
                await producer.send_and_wait(EVENTS.name, orjson.dumps(each), key=key)

    with System(stack_config(data=tmp_path / "own", kafka=broker), partitions=1) as own:
        asyncio.run(produce(own.addresses.kafka))
        assert own.drain(PATIENCE_S)
        stored = stored_at(vars(own.addresses), tenant)
        good = [each["id"] for each in (events[0], *events[2:])]
        assert sorted(stored.ids()) == sorted(good)
        assert stored.counted("refund")["workflow_type=refund"] == 3
        assert headstart("verify", "--data", own.data).returncode == 0
        listed = headstart("dead-letters", "list", "--json", "--data", own.data)
        assert len(orjson.loads(listed.stdout)["dead_letters"]) == 2, "one for each group"


def test_a_header_whose_name_is_no_text(
    broker: str,
    tmp_path: Path,
    tenant: str,
    judged: Callable[..., Event],
    stored_at: Callable[..., Any],
    headstart: Callable[..., Any],
) -> None:
    """No broker refuses it, and other clients than aiokafka write any bytes."""
    event = judged(tenant)

    async def produce(kafka: str) -> None:
        async with new_producer(kafka) as producer:
            batch = producer.create_batch()
            key, value = event_key(tenant, "refund"), orjson.dumps(event)
            batch.append(key=key, value=value, timestamp=None, headers=[("POISON", b"x")])
            batch.close()
            build = batch._build

            def poisoned() -> bytes:
                raw = bytearray(build()).replace(b"POISON", b"\xff\xfeISON")
                struct.pack_into(">I", raw, CRC_AT, calc_crc32c(bytes(raw[ATTRIBUTES_AT:])))
                return bytes(raw)

            batch._build = poisoned
            await (await producer.send_batch(batch, EVENTS.name, partition=0))

    with System(stack_config(data=tmp_path / "own", kafka=broker), partitions=1) as own:
        asyncio.run(produce(own.addresses.kafka))
        assert own.drain(PATIENCE_S)
        stored = stored_at(vars(own.addresses), tenant)
        assert stored.ids() == [event["id"]]
        assert stored.counted("refund")["workflow_type=refund"] == 1
        for words in (
            ("events", "tail"), ("thresholds", "export", "-"), ("verify",), ("thresholds", "list"),
            ("export", str(tmp_path / "log.zip")), ("backtest",), ("rebuild", "--dry-run"),
        ):  # fmt: skip
            ended = headstart(*words, "--data", own.data)
            assert "utf-8" not in ended.stderr, (words, ended.stderr)


def test_more_thresholds_of_one_record_than_their_topic_takes_in_a_batch(
    tenant: str,
    send: Callable[[bytes, int], None],
    judged: Callable[..., Event],
    read_topic: Callable[[str], list[Any]],
) -> None:
    wide = "%" * 250  # three bytes each in a path
    frame = [judged(tenant, user_id=f"{wide}{number}") for number in range(MAX_FRAME_EVENTS)]
    send(orjson.dumps(frame), partition_for(tenant, "refund", PARTITIONS))
    users = [
        record.key
        for record in read_topic(THRESHOLDS.name)
        if record.key.startswith(tenant.encode()) and b"user_id" in record.key
    ]
    assert len(users) == MAX_FRAME_EVENTS
    assert sum(map(len, users)) > 700_000
