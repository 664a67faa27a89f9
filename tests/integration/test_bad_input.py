"""What cannot be taken in becomes a dead letter; everything around it flows on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from deploy.system import System
from headstart.connections.kafka_connections import new_producer
from headstart.events.schema import MAX_EVENT_BYTES
from headstart.keys import event_key
from processing.records.partitioner import partition_for
from tests.patience import PATIENCE_S
from topics.catalogue import DEAD_LETTERS, EPISODES_GROUP, EVENTS, THRESHOLDS_GROUP

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
BOTH = {EPISODES_GROUP, THRESHOLDS_GROUP}
YEAR_5000_MS = 95_617_584_000_000

# What is changed in a good event, the text in the reason, and which groups refuse it.
BAD: dict[str, tuple[Event, str, set[str]]] = {
    "missing field": ({"workflow_id": None}, "workflow_id: is missing", BOTH),
    "mistyped field": ({"success": "yes"}, "success: must be true or false", BOTH),
    "confidence 7": ({"confidence": 7}, "confidence: must be at least 0 and at most 1", BOTH),
    "the year 5000": ({"timestamp": YEAR_5000_MS}, "timestamp: is", BOTH),
    "a NUL byte": ({"data": {"query": "a\0b"}}, "data.query: holds a NUL byte", BOTH),
    "too large": ({"note": "x" * MAX_EVENT_BYTES}, f"the limit is {MAX_EVENT_BYTES}", BOTH),
    "a start without task_id": (
        {"event_type": "speculation_start"},
        "task_id: is missing",
        {THRESHOLDS_GROUP},
    ),
}


async def send(kafka: str, partition: int, key: bytes, value: bytes | None) -> int:
    """Produce one record as third parties do; return its offset."""
    async with new_producer(kafka) as producer:
        sent = await producer.send_and_wait(EVENTS.name, value, key=key, partition=partition)
        return int(sent.offset)


class Door:
    """Produces raw records to the right partition, and returns which were refused."""

    def __init__(self, system: System, tenant: str, read: Callable[[str], list[Any]]) -> None:
        self._system, self._kafka, self._read = system, system.addresses.kafka, read
        self.key = event_key(tenant, "refund")
        self.partition = partition_for(tenant, "refund", 4)
        self._known = len(read(DEAD_LETTERS.name))

    def send(self, value: bytes | None, partition: int | None = None) -> int:
        where = self.partition if partition is None else partition
        return asyncio.run(send(self._kafka, where, self.key, value))

    def refused(self) -> list[tuple[bytes, dict[str, str]]]:
        assert self._system.drain(PATIENCE_S)
        return [
            (record.value, {name: value.decode() for name, value in record.headers})
            for record in self._read(DEAD_LETTERS.name)[self._known :]
        ]


@pytest.fixture
def door(system: System, tenant: str, read_topic: Callable[[str], list[Any]]) -> Door:
    return Door(system, tenant, read_topic)


def frame(*events: Event) -> bytes:
    return json.dumps(events).encode()


def origin(headers: dict[str, str]) -> tuple[str, int, int]:
    prefix = "__connect.errors."
    return (
        headers[f"{prefix}topic"],
        int(headers[f"{prefix}partition"]),
        int(headers[f"{prefix}offset"]),
    )


def reason(headers: dict[str, str]) -> str:
    return headers["__connect.errors.exception.message"]


@pytest.mark.parametrize("case", list(BAD))
def test_one_bad_event_in_a_frame(
    door: Door, stored: Any, tenant: str, judged: Callable[..., Event], case: str
) -> None:
    changed, why, groups = BAD[case]
    good = [judged(tenant) for _ in range(4)]
    bad = judged(tenant, **changed)
    bad = {name: value for name, value in bad.items() if value is not None}
    door.send(frame(good[0]))
    offset = door.send(frame(good[1], bad, good[2]))
    door.send(json.dumps(good[3]).encode())  # one object is a record too

    letters = door.refused()
    assert {headers["headstart.group"] for _value, headers in letters} == groups
    assert len(letters) == len(groups)
    for value, headers in letters:
        assert json.loads(value) == bad
        assert origin(headers) == (EVENTS.name, door.partition, offset)
        assert why in reason(headers)
    kept = good if EPISODES_GROUP in groups else [*good, bad]
    assert stored.ids() == sorted(event["id"] for event in kept)
    assert stored.counted("refund") == {
        "workflow_type=refund": 4,
        "workflow_type=refund/domain=retail": 4,
    }


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{nope", "not JSON"),
        (b"[{]", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"7", "an event is a JSON object"),
        (None, "the record has no value"),
        (b"", "the record has no value"),
    ],
)
def test_a_bad_record_between_good_ones(
    door: Door,
    stored: Any,
    tenant: str,
    judged: Callable[..., Event],
    value: bytes | None,
    why: str,
) -> None:
    good = [judged(tenant), judged(tenant)]
    door.send(frame(good[0]))
    offset = door.send(value)
    door.send(frame(good[1]))

    letters = door.refused()
    assert {headers["headstart.group"] for _value, headers in letters} == BOTH
    assert len(letters) == 2
    for kept, headers in letters:
        assert (kept or b"") == (value or b"")
        assert origin(headers) == (EVENTS.name, door.partition, offset)
        assert why in reason(headers)
    assert stored.ids() == sorted(event["id"] for event in good)
    assert stored.counted("refund")["workflow_type=refund"] == 2


def test_two_partitions_never_own_one_context(
    door: Door, stored: Any, tenant: str, judged: Callable[..., Event]
) -> None:
    good, strayed = judged(tenant), judged(tenant)
    door.send(frame(good))
    wrong = (door.partition + 1) % 4
    offset = door.send(frame(strayed), partition=wrong)

    ((value, headers),) = door.refused()
    assert json.loads(value) == strayed
    assert headers["headstart.group"] == THRESHOLDS_GROUP
    assert origin(headers) == (EVENTS.name, wrong, offset)
    assert f"its key belongs to partition {door.partition}" in reason(headers)
    assert stored.ids() == sorted([good["id"], strayed["id"]]), "the memory still keeps it"
    assert stored.counted("refund")["workflow_type=refund"] == 1
