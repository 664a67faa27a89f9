"""Producers whose clocks are wrong: they harm no other, and are notified."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest
from aiokafka.errors import KafkaError

from deploy.system import System
from headstart import Emitter, speculation_start, task_complete
from headstart.connections.kafka_connections import new_producer
from headstart.keys import event_key
from processing.records.partitioner import partition_for
from tests.patience import PATIENCE_S
from topics.catalogue import DEAD_LETTERS, EVENTS
from topics.dead_letters.messages import GROUP_HEADER, REASON_HEADER

pytestmark = pytest.mark.integration

PARTITIONS = 4
PAIRS = 30
YEARS_MS = 74 * 365 * 86_400_000
Event = dict[str, Any]


@pytest.fixture
def produce(system: System, tenant: str) -> Callable[[Sequence[Event], int | None], bool]:
    """Produce events with a Kafka timestamp; return False where the broker refuses that."""

    async def send(events: Sequence[Event], timestamp_ms: int | None) -> None:
        async with new_producer(system.addresses.kafka) as producer:
            for event in events:
                await producer.send_and_wait(
                    EVENTS.name, orjson.dumps(event), key=event_key(tenant, "refund"),
                    partition=partition_for(tenant, "refund", PARTITIONS),
                    timestamp_ms=timestamp_ms,
                )  # fmt: skip

    def sent(events: Sequence[Event], timestamp_ms: int | None) -> bool:
        try:
            asyncio.run(send(events, timestamp_ms))
        except KafkaError:
            return False  # Apache Kafka 4 takes none that is more than an hour ahead
        return True

    return sent


def emit_pairs(system: System, tenant: str, name: str) -> None:
    with Emitter(system.addresses.kafka) as emitter:
        for number in range(PAIRS):
            task = {
                "tenant": tenant, "workflow_type": "refund", "workflow_id": f"{name}{number}",
                "task_id": "1",
            }  # fmt: skip
            emitter.emit(speculation_start(guess="s", confidence=0.9, speculated=True, **task))
            emitter.emit(task_complete(tool_id="s", gain_ms=400.0, cost_ms=600.0, **task))
        emitter.flush(PATIENCE_S)


def test_a_record_from_2100_harms_no_context_and_no_guess(
    system: System,
    stored: Any,
    tenant: str,
    judged: Callable[..., Event],
    produce: Callable[[Sequence[Event], int | None], bool],
) -> None:
    emit_pairs(system, tenant, "before")
    stored.until(lambda: stored.counted("refund") == {"workflow_type=refund": PAIRS})
    now = time.time_ns() // 1_000_000
    opened = speculation_start(
        workflow_type="refund", workflow_id="open", task_id="1", guess="s", confidence=0.9,
        speculated=True, tenant=tenant,
    )  # fmt: skip
    with Emitter(system.addresses.kafka) as emitter:
        emitter.emit(opened)
        emitter.flush(PATIENCE_S)
    fast = [judged(tenant, timestamp=now + 3_588_000, user_id="fast") for _ in range(50)]
    assert produce(fast, now)
    evil = {"event_type": "workflow_complete", "workflow_id": "evil"}
    future = produce([judged(tenant, timestamp=now + YEARS_MS, **evil)], now + YEARS_MS)
    assert system.drain(PATIENCE_S)
    assert stored.counted("refund")["workflow_type=refund"] == PAIRS + 50

    with Emitter(system.addresses.kafka) as emitter:
        done = {key: opened[key] for key in ("workflow_type", "workflow_id", "task_id", "tenant")}
        emitter.emit(task_complete(tool_id="s", **done))
        emitter.flush(PATIENCE_S)
    emit_pairs(system, tenant, "after")
    assert system.drain(PATIENCE_S)
    assert stored.counted("refund")["workflow_type=refund"] == 2 * PAIRS + 50 + 1
    assert stored.served("refund")["workflow_type=refund"]["at"] < now + 3_600_000
    assert len(stored.ids()) == 4 * PAIRS + 2 + 50 + future


def test_timestamps_in_seconds_are_refused_by_both_groups(
    system: System,
    stored: Any,
    tenant: str,
    judged: Callable[..., Event],
    produce: Callable[[Sequence[Event], int | None], bool],
    read_topic: Callable[..., list[Any]],
) -> None:
    seconds = int(time.time())
    assert produce([judged(tenant, timestamp=seconds), judged(tenant)], None)
    assert system.drain(PATIENCE_S)
    letters = [
        dict(letter.headers)
        for letter in read_topic(DEAD_LETTERS.name)
        if letter.key == event_key(tenant, "refund")
    ]
    reasons = {letter[REASON_HEADER].decode() for letter in letters}
    assert reasons == {f"timestamp: {seconds} reads as seconds; give Unix milliseconds"}
    assert len({letter[GROUP_HEADER] for letter in letters}) == 2
    assert len(stored.ids()) == 1
