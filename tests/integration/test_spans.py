"""Spans of an OpenTelemetry Collector's topic become rows in Postgres, each once."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka.admin import NewTopic
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from deploy.supervisor import Supervisor
from deploy.system import System
from headstart.connections.kafka_connections import new_producer
from tests.patience import until
from tests.secured import ALLOWED, everything_allowed
from tests.secured import environment as login
from topics.kafka.admin import admin_client

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

EXPORTS = Path(__file__).parents[1] / "replay" / "data" / "otlp"


class Stored(Protocol):
    tenant: str

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]: ...


def exported(tenant: str, name: str) -> list[dict[str, Any]]:
    """Export requests, one a span, of this test's tenant."""
    found = [json.loads(line) for line in (EXPORTS / name).read_text().splitlines()]
    for document in found:
        for group in document["resourceSpans"]:
            named = {"key": "headstart.tenant", "value": {"stringValue": tenant}}
            group["resource"]["attributes"].append(named)
    return found


def protobuf(document: dict[str, Any]) -> bytes:
    text = json.dumps(document)
    for group in document["resourceSpans"]:
        for span in (span for scope in group["scopeSpans"] for span in scope["spans"]):
            for name in ("traceId", "spanId", "parentSpanId"):
                if given := span.get(name):  # JSON of protobuf has bytes in base64
                    encoded = base64.b64encode(bytes.fromhex(given)).decode()
                    text = text.replace(f'"{given}"', f'"{encoded}"')
    return ParseDict(json.loads(text), TracesData()).SerializeToString()


async def create(kafka: str, topic: str) -> None:
    async with admin_client(kafka) as client:
        await client.create_topics([NewTopic(topic, 2, 1)])


async def send(kafka: str, topic: str, values: Sequence[bytes]) -> None:
    async with new_producer(kafka, compression_type="gzip") as producer:
        for number, value in enumerate(values):
            await producer.send_and_wait(topic, value, partition=number % 2)


@pytest.fixture
def worker(system: System, tenant: str, tmp_path: Path) -> Iterator[tuple[str, Supervisor]]:
    topic, kafka = f"otlp_spans-{tenant}", system.addresses.kafka
    with everything_allowed(system.data):  # `up --secure` has no login for a worker of spans
        asyncio.run(create(kafka, topic))
        yield from running(system, topic, tmp_path)


def running(system: System, topic: str, folder: Path) -> Iterator[tuple[str, Supervisor]]:
    """Run the worker with the login of this test."""
    environment = {
        **login(ALLOWED),
        "HEADSTART_KAFKA": system.addresses.kafka,
        "HEADSTART_POSTGRES": system.addresses.postgres,
        "HEADSTART_REDIS": system.addresses.redis,
        "HEADSTART_DATA": str(folder),
        "HEADSTART_SPANS_TOPIC": topic,
    }
    supervisor = Supervisor(folder / "workers", environment, ("spans",))
    supervisor.start()
    try:
        yield topic, supervisor
    finally:
        supervisor.stop()


def test_spans_are_stored_once(
    system: System, tenant: str, stored: Stored, worker: tuple[str, Supervisor]
) -> None:
    topic, supervisor = worker
    kafka = system.addresses.kafka
    documents = exported(tenant, "pydantic-default.jsonl")
    half = len(documents) // 2  # a trace over several records, in both encodings
    values = [json.dumps(each).encode() for each in documents[:half]]
    values += [protobuf(each) for each in documents[half:]]
    asyncio.run(send(kafka, topic, [*values, b"no spans", *values]))  # the exporter sends again

    def rows() -> list[tuple[Any, ...]]:
        return stored.query(
            "SELECT tool_id, success, data -> 'arguments', data #>> '{result,output}', workflow_id"
            " FROM episodic_events WHERE tenant = %s ORDER BY timestamp, data ->> 'call_id'",
            tenant,
        )

    def stored_once() -> bool:
        supervisor.check()
        return len(rows()) == 3

    until(stored_once, seen=rows)
    conversation = rows()[0][4]
    assert rows() == [
        ("search", True, {"query": "a"}, "found a", conversation),
        ("search", True, {"query": "b"}, "found b", conversation),
        ("broken", False, {"order": "7"}, "no such order", conversation),
    ]
    # A worker that is killed reads from its last committed offset: nothing is stored twice.
    (pid,) = supervisor.pids.values()
    supervisor.halt()
    other = exported(tenant, "langgraph-genai.jsonl")
    asyncio.run(send(kafka, topic, [json.dumps(each).encode() for each in other]))
    supervisor.resume()

    def restarted() -> bool:
        supervisor.check()
        return [*supervisor.pids.values()] != [pid] and len(rows()) == 6

    until(restarted, seen=rows)
    assert system.drain(60.0)
    assert len(rows()) == 6
