"""Replays of a log with a purge: what it covers is left out, as if it had never been there."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import orjson
import pytest

from bench.support.measuring import produce
from headstart.events.schema import new_id
from headstart.keys import event_key
from learners.registry import policy
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.records.partitioner import partition_for
from replay.engine.join import Filter
from replay.log.purges import leave_out_purged, read_log_purges
from replay.predictions.notes import Notes
from replay.purge.remains import remains
from replay.rebuild.relearn import relearn
from replay.sources.base import ReadOptions
from replay.sources.broker import BrokerSource
from sinks.postgres.purges import StoredPurge
from topics.catalogue import DEAD_LETTERS, EVENTS
from topics.control.log import send_control
from topics.control.messages import CONTROL_HEADER, Purge
from topics.control.purges import PartitionPurges, PlacedPurge
from topics.epoch import Epoch
from topics.kafka.topic_states import TopicState

NOW = time.time_ns() // 1_000_000 - 600_000
CANARY = "canary-77"
UNCOMPARED = {"tenant", "offset", "epoch"}


def judged(tenant: str, user: str | None, number: int, **more: Any) -> dict[str, Any]:
    event = {
        "id": new_id(), "event_type": "task_complete", "tenant": tenant,
        "workflow_type": ("refund", "order")[number % 2], "workflow_id": f"w{number}",
        "task_id": "1", "timestamp": NOW + number, "confidence": 0.5 + number % 40 / 100,
        "data": {
            "context": {"domain": "retail", "note": CANARY if user == "u1" else "x"},
            "prediction": {"was_correct": number % 3 > 0, "speculated": True},
        },
        **more,
    }  # fmt: skip
    return event if user is None else event | {"user_id": user}


def frame(events: list[dict[str, Any]]) -> bytes:
    return orjson.dumps(events)


def test_covered_events_are_taken_out_of_their_frames_and_all_else_stays() -> None:
    events = [judged("acme", user, n) for n, user in enumerate(["u1", "u2", None, "u1"])]
    values: list[bytes | None] = [
        frame(events), orjson.dumps(events[0]), frame([events[0], events[3]]), b"not JSON [", None,
        frame([judged("rival", "u1", 9)]), frame(events),
    ]  # fmt: skip
    batch = RecordBatch("t", 0, 0, 8, [*range(7)], [NOW] * 7, [b"k"] * 7, list(values))
    batch.headers[6] = ((CONTROL_HEADER, b"1"),)
    purges = PartitionPurges([PlacedPurge(Purge("p", NOW, "acme", "u1", runs=("w2",)), 5)])
    assert leave_out_purged(batch, purges) == 6
    assert batch.values == [frame(events[1:2]), b"[]", b"[]", *values[3:]]
    assert batch.offsets == [*range(7)], "offsets stay, as in the live table"
    assert leave_out_purged(batch, PartitionPurges()) == 0


@pytest.mark.integration
def test_what_is_learned_is_as_if_the_user_had_never_been_there(
    kafka: str, log_epoch: Epoch, tenant: str
) -> None:
    other = f"{tenant}-without"
    users = ["u1", "u2", None, "u1", "u3"]
    events = [judged(tenant, users[n % 5], n) for n in range(100)]
    kept = [{**each, "tenant": other} for each in events if each.get("user_id") != "u1"]
    records = [
        (partition_for(each["tenant"], each["workflow_type"], log_epoch.partitions),
         event_key(each["tenant"], each["workflow_type"]), orjson.dumps(each))
        for each in [*events, *kept]
    ]  # fmt: skip
    purge = Purge(new_id(), time.time_ns() // 1_000_000, tenant, "u1")

    async def write() -> dict[int, int]:
        await produce(kafka, records)
        offsets = await send_control(kafka, purge)
        late = judged(tenant, "u1", 500)  # a spool still had it
        new = [judged(name, user, 600, timestamp=purge.at + 1)
               for name, user in ((tenant, "u1"), (other, "u1"))]  # fmt: skip
        await produce(kafka, [
            (partition_for(each["tenant"], each["workflow_type"], log_epoch.partitions),
             event_key(each["tenant"], each["workflow_type"]), orjson.dumps(each))
            for each in [late, *new]
        ])  # fmt: skip
        return offsets

    offsets = asyncio.run(write())
    found = asyncio.run(read_log_purges(kafka, None))
    assert set(found) == set(offsets)
    assert all(tenant in each.tenants for each in found.values())
    assert not any(tenant in p.tenants for p in asyncio.run(read_log_purges(kafka, b"k")).values())

    history = BrokerSource(kafka, ReadOptions())
    read = b"".join(
        value or b""
        for unit in history.units()
        for batch, _ in history.batches(unit, Notes())
        for value in batch.values
        if tenant.encode() in (value or b"") and other.encode() not in (value or b"")
    )
    assert read.count(CANARY.encode()) == 1, "only what was written afterwards"

    def learned(name: str) -> list[dict[str, Any]]:
        chosen = BrokerSource(kafka, ReadOptions(chosen=Filter(name)))
        rules = LearningConfig(policy("td"))
        thresholds, _ = relearn(chosen, rules, lambda _: None, processes=1)
        rows = [msgspec.to_builtins(each) for each in thresholds]
        compared = [{k: v for k, v in row.items() if k not in UNCOMPARED} for row in rows]
        return sorted(compared, key=lambda row: str(row["path"]))

    assert learned(tenant) == learned(other)
    assert any("user_id=u1" in each["path"] for each in learned(tenant))


def test_a_receipt_names_where_bytes_remain_and_until_when() -> None:
    purge = Purge("p", NOW, "acme", "u1")
    stored = StoredPurge(purge, 7, {0: 10, 1: 20}, 3)
    states = {
        EVENTS.name: TopicState(EVENTS.name, 2, {0: 11, 1: 5}, {0: 30, 1: 30}),
        DEAD_LETTERS.name: TopicState(DEAD_LETTERS.name, 1, {0: 4}, {0: 4}),
    }
    settings = {EVENTS.name: {"retention.ms": "1000", "segment.ms": "500"}}
    first, *elsewhere = remains(stored, Epoch(7, 2), states, settings)
    assert (first.where, first.until, first.partitions) == (EVENTS.name, NOW + 1_500, [1])
    assert DEAD_LETTERS.name not in {each.where for each in elsewhere}, "it is empty"
    (marks,) = [each for each in elsewhere if each.where == "Redis"]
    assert marks.until == NOW + 1_800_000
    assert "30 minutes after" in marks.what
    marks = remains(stored, Epoch(7, 2), states, settings, 90.0)[1]
    assert (marks.until, "90 seconds after" in marks.what) == (NOW + 90_000, True)
    everything_gone = {EVENTS.name: TopicState(EVENTS.name, 2, {0: 11, 1: 21}, {0: 30, 1: 30})}
    assert remains(stored, Epoch(7, 2), everything_gone, settings) == elsewhere
    unapplied = stored._replace(offsets={0: 10})
    (waiting, *_) = remains(unapplied, Epoch(7, 2), everything_gone, settings)
    assert waiting.partitions == [1], "the sink has not come to the record there"
    (again, *_) = remains(stored, Epoch(8, 2), everything_gone, {})
    assert (again.partitions, again.until) == ([0, 1], None), "of another log nothing is known"
