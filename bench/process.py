"""Threshold agent, all its rules on, next to its anchors on the same topic.

One process and one context level on every side, JSON records as our client sends them; the backlog
is complete before anybody starts. Our rate, and plain Faust's, come from the changelogs: what
happened between the first and the last acknowledged write. Quix's and Kafka Streams' are from their
first record to their last.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.kafka_streams import available, kafka_streams
from bench.measuring import (
    Running,
    frames,
    fresh_stack,
    produce,
    say,
    wait_until,
    worker_environment,
)
from bench.plain_faust import GROUP
from bench.quix_streams import quix_streams
from deploy.local import Addresses
from processing.rows import PARTITION_KEY, version
from topics.admin import committed_offsets, describe_topics
from topics.catalogue import CHANGELOG, EVENTS, THRESHOLDS_GROUP
from topics.reading import read_records, topic_state

PLAIN_EVENTS: Final = 20_000
QUIX_SHARE: Final = 5
"""Quix gets a fifth of the backlog: its rate does not depend on the length."""
PLAIN_CHANGELOG: Final = f"{GROUP}-contexts-changelog"


class Case(NamedTuple):
    """One backlog, and who learns from it."""

    name: str
    share: float = 1.0
    """Of the events asked for."""
    per_record: int = 1
    filled: bool = True
    """Kafka batches well filled, or one record each."""
    contexts: int = 200
    learner: str = "ema"


FIRST: Final = Case("one event per record")
SLOW: Final = Case("one record per Kafka batch", share=0.2, filled=False)
OTHERS: Final = (
    Case("frames of 7", per_record=7),
    Case("frames of 200", per_record=200),
    Case("10,000 contexts", contexts=10_000),
    Case("default learner", share=0.4, learner="default"),
    Case("default learner, frames of 200", share=0.4, per_record=200, learner="default"),
)


def run(kafka: str, count: int = 500_000) -> dict[str, Any]:
    """Return the figures; each case has a broker and a backlog of its own."""
    first = _measured(kafka, FIRST, count, anchors=True)
    slow = _measured(kafka, SLOW, count, anchors=False)
    cases = [first, slow, *(_measured(kafka, case, count, anchors=False) for case in OTHERS)]
    ours = first["events_per_s"]
    return {
        "events_per_s": ours,
        "ratio_naive": _ratio(ours, first["naive_events_per_s"]),
        "ratio_quix": _ratio(ours, first["quix_events_per_s"]),
        "ratio_kafka_streams": _ratio(ours, first["kafka_streams_events_per_s"]),
        "slow_producers_events_per_s": slow["events_per_s"],
        "slow_producers_ratio_kafka_streams": _ratio(
            slow["events_per_s"], slow["kafka_streams_events_per_s"]
        ),
        "cases": cases,
        "framing": "JSON events, one context level; filled batches unless said otherwise",
        "broker": kafka,
    }


def _ratio(ours: float, anchor: float | None) -> float | None:
    return round(ours / anchor, 2) if anchor else None


def _measured(kafka: str, case: Case, count: int, *, anchors: bool) -> dict[str, Any]:
    """Measure a case: ours, and where the records are single events Kafka Streams beside it."""
    events = round(count * case.share / case.per_record) * case.per_record
    with fresh_stack(kafka) as (addresses, folder):
        say(f"{case.name}: {events} events, {case.contexts} contexts, {case.learner}, on {kafka}")
        made = frames(events, case.per_record, case.contexts)
        records = asyncio.run(produce(addresses.kafka, made, filled=case.filled))
        found: dict[str, Any] = {**case._asdict(), "events": records * case.per_record}
        del found["share"]
        beside = case.per_record == 1 and case.contexts == 200 and case.learner == "ema"
        if beside:
            streams = kafka_streams(addresses.kafka, folder, records) if available() else None
            found["kafka_streams_events_per_s"] = round(streams.processing) if streams else None
            say(f"  Kafka Streams: {streams}")
        if anchors:
            found["quix_events_per_s"] = round(
                quix_streams(addresses.kafka, folder, records // QUIX_SHARE)
            )
            found["naive_events_per_s"] = round(_plain_faust(addresses, folder))
            say(f"  Quix: {found['quix_events_per_s']:,}, Faust: {found['naive_events_per_s']:,}")
        rate = threshold_agent(addresses, folder, records, learner=case.learner)
        found["events_per_s"] = round(rate * case.per_record)
        say(f"  threshold agent: {found['events_per_s']:,} events/s")
    return found


def threshold_agent(
    addresses: Addresses, folder: Path, records: int, module: str = "cli", learner: str = "ema"
) -> float:
    """Return the records/s of a worker that drains the topic; `module` is what runs it."""
    environment = worker_environment(
        addresses, folder / "agent", HEADSTART_LEARNER=learner, HEADSTART_LEVELS=""
    )
    argv = [sys.executable, "-m", module, "worker", "thresholds"]
    with Running(folder, "agent", argv, environment):
        wait_until(lambda: asyncio.run(_done(addresses.kafka)) >= records)
    marks = asyncio.run(_watermarks(addresses.kafka))
    first: dict[int, tuple[int, int]] = {}
    for at, partition, applied in marks:
        first.setdefault(partition, (at, applied))
    begun = min((at for at, _applied in first.values()), default=0)
    ended = max((at for at, _partition, _applied in marks), default=0)
    if begun == ended:
        raise ValueError("the first commits hold the whole backlog: give more --events")
    # What the first commits hold was done before the clock started.
    return (records - sum(applied for _at, applied in first.values())) / (ended - begun) * 1000


async def _done(kafka: str) -> int:
    state = await topic_state(kafka, EVENTS.name)
    offsets = await committed_offsets(kafka, THRESHOLDS_GROUP, EVENTS.name, state.partitions)
    return sum(offsets.values())


async def _watermarks(kafka: str) -> list[tuple[int, int, int]]:
    """Return (written at in Unix ms, partition, records applied) of every commit."""
    state = await topic_state(kafka, CHANGELOG.name)
    return [
        (record.timestamp, record.partition, version(record.value)[1] + 1)
        async for record in read_records(kafka, CHANGELOG.name, state.begin, state.end)
        if record.key == PARTITION_KEY
    ]


def _plain_faust(addresses: Addresses, folder: Path) -> float:
    """Return the events/s of the anchor over its first writes."""
    argv = [
        sys.executable, "-m", "bench.plain_faust", addresses.kafka, str(folder / "plain-data"),
    ]  # fmt: skip
    with Running(folder, "plain", argv, {}):
        wait_until(lambda: _end(asyncio.run(_plain_state(addresses.kafka))) >= PLAIN_EVENTS)
    return asyncio.run(_write_rate(addresses.kafka))


async def _plain_state(kafka: str) -> Mapping[int, int]:
    states = await describe_topics(kafka, [PLAIN_CHANGELOG])
    return states[PLAIN_CHANGELOG].end if PLAIN_CHANGELOG in states else {}


def _end(offsets: Mapping[int, int]) -> int:
    return sum(offsets.values())


async def _write_rate(kafka: str) -> float:
    state = await topic_state(kafka, PLAIN_CHANGELOG)
    written = [
        record.timestamp
        async for record in read_records(kafka, PLAIN_CHANGELOG, state.begin, state.end)
    ]
    rate: float = len(written) / (max(written) - min(written)) * 1000
    return rate
