"""A host of executors, topics, a log of what was sent, and Redis, for the tests of the client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from headstart.emitting.emitter import TOPIC
from headstart.keys import MODES, PUBLISHED
from tests.client.broker_log import Log
from tests.client.redis_server import Server
from tests.client.spooling import Host, end, new_host
from topics.epoch import ensure_topics
from topics.kafka.reader import topic_state


@pytest.fixture(scope="module")
def topics(kafka: str) -> None:
    asyncio.run(ensure_topics(kafka, partitions=4))


@pytest.fixture
def log(kafka: str, tenant: str, topics: None) -> Log:
    begin = asyncio.run(topic_state(kafka, TOPIC)).end
    return Log(kafka, tenant, dict(begin))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    server.publish_modes()
    yield server
    server.stop()
    server.client.close()


@pytest.fixture
def host(kafka: str, tenant: str, topics: None, tmp_path: Path) -> Iterator[Host]:
    made = new_host(kafka, tenant, tmp_path)
    yield made
    end(made)


@pytest.fixture
def modes_published(redis_url: str) -> Iterator[None]:
    """The marker that all modes are in the session's Redis, which has no workers."""
    with Redis.from_url(redis_url) as client:
        client.hset(MODES, PUBLISHED, "a run id")
        yield
        client.hdel(MODES, PUBLISHED)


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What an SDK exports. A process can set its tracer provider once, a test for itself."""
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter.get_finished_spans
    provider.shutdown()
