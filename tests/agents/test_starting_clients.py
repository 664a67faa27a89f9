"""Faust's clients wait for a while when no broker can be used as they start."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from aiokafka.client import AIOKafkaClient
from yarl import URL

from agents.app import new_app
from agents.config import WorkerConfig
from agents.consumer import faust_transport
from tests.chaos.proxy import Proxy
from tests.ports import free_port
from topics.kafka.asking_again import ask_again


def transport(port: int) -> SimpleNamespace:
    return SimpleNamespace(url=[URL(f"kafka://127.0.0.1:{port}")], default_port=9092)


def test_a_start_waits_until_a_broker_can_be_used(kafka: str) -> None:
    port = free_port()

    async def run() -> None:
        client = AIOKafkaClient(bootstrap_servers=f"127.0.0.1:{port}")
        faust_transport.start_patiently(client, transport(port))
        starting = asyncio.create_task(client.bootstrap())
        await asyncio.sleep(1.0)
        assert not starting.done()
        proxy = await asyncio.to_thread(Proxy, int(kafka.rpartition(":")[2]), port)
        try:
            await starting
            assert client.cluster.brokers()
            await client.close()
        finally:
            await asyncio.to_thread(proxy.close)

    asyncio.run(run())


def test_both_clients_of_a_worker_start_so(worker_config: WorkerConfig) -> None:
    async def run() -> None:
        app = new_app("a-group", worker_config)
        thread = app.consumer._thread
        consumer = thread._create_worker_consumer(app.transport)
        producer = app.producer._new_producer()
        for client in (consumer._client, producer.client):
            assert client.bootstrap.func is ask_again
            assert client.bootstrap.args[0] == worker_config.kafka
        thread.thread_loop.close()
        consumer._closed = producer._closed = True  # they were never started

    asyncio.run(run())
