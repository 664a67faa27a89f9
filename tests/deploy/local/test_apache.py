"""Apache Kafka as the broker of the stack."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.local import Stack, StackConfig

pytestmark = [
    pytest.mark.apache,
    pytest.mark.skipif(
        not (shutil.which("java") and shutil.which("mvn")), reason="needs java and mvn"
    ),
]


async def send(server: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("kept", 1, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=server, enable_idempotence=True) as producer:
        await producer.send_and_wait("kept", b"event", partition=0)


async def first_of(server: str) -> bytes | None:
    async with AIOKafkaConsumer(bootstrap_servers=server, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("kept", 0)])
        return (await asyncio.wait_for(consumer.getone(), 20)).value


def test_its_log_survives_a_restart(make: Callable[..., Stack], tmp_path: Path) -> None:
    at = make().start()
    config = StackConfig(
        data=tmp_path / "apache", kafka="apache", postgres=at.postgres, redis=at.redis
    )
    with Stack(config) as stack:
        asyncio.run(send(stack.addresses.kafka))
        first = stack.addresses
    with Stack(config) as stack:
        assert stack.addresses == first
        assert asyncio.run(first_of(stack.addresses.kafka)) == b"event"
