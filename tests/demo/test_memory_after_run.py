"""The demo's memory on a real broker and Postgres, without workers: their functions are called."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from agents.memory.assembling import StepTarget, assemble_next
from agents.memory.embedding import GuardedEmbedder
from bench.support.measuring import produce
from demo.executor import Assignment, Executor, workflows
from demo.memory import memory_lines, memory_of
from deploy.local import Addresses
from headstart.events.schema import new_id
from headstart.keys import event_key
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.store.vectors import can_store_vectors, use_model
from processing.records.partitioner import partition_for
from sinks.connections import connect_postgres
from tests.memory.stored_runs import AT, store
from topics.catalogue import EVENTS
from topics.epoch import Epoch
from topics.kafka.reader import topic_state

RUNS = 60


class Watching:
    """Thresholds of an executor that starts nothing."""

    def get(self, _task: object) -> SimpleNamespace:
        return SimpleNamespace(speculate=1.0, suggest=1.0)

    def mode(self, *_names: str) -> str:
        return "observe"


class Collecting:
    """Takes an executor's events, a second apart."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: dict[str, Any]) -> None:
        at = AT + 1_000 * len(self.events)
        self.events.append({"id": new_id(at), "timestamp": at, **event})


def demo_events(tenant: str) -> list[dict[str, Any]]:
    work = Assignment("k", "r", "s", tenant, 7, 0, 1, 1e9, 0.6, 1e9, None, ("domain",))
    emitter = Collecting()
    executor = Executor(work, emitter, Watching())  # type: ignore[arg-type]
    for number, workflow in zip(range(RUNS), workflows(work, 0.0), strict=False):
        executor.execute(number, workflow)
    return emitter.events


async def assembled(dsn: str) -> None:
    async with await connect_postgres(dsn) as connection:
        await can_store_vectors(connection)
        embedder = WordLlamaEmbedder()
        model = await use_model(connection, embedder)
        target = StepTarget(connection, GuardedEmbedder(embedder), model.id)
        while (await assemble_next(target, 500, 0)).rows:
            pass


@pytest.mark.integration
def test_three_cases_and_their_worth(
    addresses: Addresses, log_epoch: Epoch, tenant: str, migrated: str
) -> None:
    events = demo_events(tenant)
    begin = asyncio.run(topic_state(addresses.kafka, EVENTS.name)).end
    records = []
    for each in events:
        owner = each["tenant"], each["workflow_type"]
        partition = partition_for(*owner, log_epoch.partitions)
        records.append((partition, event_key(*owner), orjson.dumps(each)))
    asyncio.run(produce(addresses.kafka, records))
    end = asyncio.run(topic_state(addresses.kafka, EVENTS.name)).end
    asyncio.run(store(migrated, events))
    asyncio.run(assembled(migrated))

    at = Addresses(addresses.kafka, migrated, addresses.redis)
    found = memory_of(at, tenant, begin, end, lambda: None)
    assert found["degraded"] == []
    assert len(found["cases"]) == 3
    last = events[-1]
    assert found["query"] == last["data"]["query"]
    for case in found["cases"]:
        assert case["workflow_id"] != last["workflow_id"]
        assert case["outcome"] == "success"
    assert found["cases"][0]["similarity"] > 0.5
    assert found["worth"]["runs"] == RUNS
    assert memory_lines(found)[-1].startswith(f"Retrieval, over the newest {RUNS} runs")
