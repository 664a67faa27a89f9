"""Threshold agent, all its rules on, next to a plain Faust agent on the same topic.

Both rates come from the changelogs: what happened between the first and the last acknowledged
write. Both keep one context level (200 contexts), the EMA rule, one process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from deploy.local import Addresses
from processing.rows import PARTITION_KEY, version
from topics.admin import committed_offsets, describe_topics
from topics.catalogue import CHANGELOG, EVENTS, THRESHOLDS_GROUP
from topics.reading import read_records, topic_state

FRAME = 200
PLAIN_EVENTS = 20_000
PLAIN_CHANGELOG = f"{GROUP}-contexts-changelog"


def run(kafka: str, count: int = 500_000) -> dict[str, Any]:
    """Return the figures; every backlog is complete before its worker starts."""
    with fresh_stack(kafka) as (addresses, folder):
        say(f"{count} events, one event per record, 200 contexts, on {kafka}")
        records = asyncio.run(produce(addresses.kafka, frames(count, 1)))
        plain = _plain_faust(addresses, folder)
        say(f"plain Faust: {plain:,.0f} events/s (its first {PLAIN_EVENTS} writes)")
        ours = threshold_agent(addresses, folder, records)
        say(f"threshold agent: {ours:,.0f} events/s")
    with fresh_stack(kafka) as (addresses, folder):
        say(f"{count} events in frames of {FRAME}")
        records = asyncio.run(produce(addresses.kafka, frames(count, FRAME)))
        framed = threshold_agent(addresses, folder, records) * FRAME
        say(f"threshold agent: {framed:,.0f} events/s")
    return {
        "events_per_s": round(ours),
        "ratio_naive": round(ours / plain, 1),
        "naive_events_per_s": round(plain),
        "frames_events_per_s": round(framed),
        "framing": f"one event per record in filled batches; frames_: {FRAME} events per record",
        "events": count,
        "contexts": 200,
        "learner": "ema",
        "broker": kafka,
    }


def threshold_agent(addresses: Addresses, folder: Path, records: int, module: str = "cli") -> float:
    """Return the records/s of a worker that drains the topic; `module` is what runs it."""
    environment = worker_environment(
        addresses, folder / "agent", HEADSTART_LEARNER="ema", HEADSTART_LEVELS=""
    )
    argv = [sys.executable, "-m", module, "worker", "thresholds"]
    with Running(folder, "agent", argv, environment):
        wait_until(lambda: asyncio.run(_done(addresses.kafka)) >= records)
    marks = asyncio.run(_watermarks(addresses.kafka))
    first: dict[int, tuple[int, int]] = {}
    for at, partition, applied in marks:
        first.setdefault(partition, (at, applied))
    begun = min(at for at, _applied in first.values())
    ended = max(at for at, _partition, _applied in marks)
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
