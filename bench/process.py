"""The threshold agent with all its features, next to its anchors on the same topic.

One process and, where there is an anchor, one context level on each side; JSON records as the
client sends them; the backlog is complete before a process starts. Ours is the rate from the
assignment of partitions to the last acknowledged checkpoint; plain Faust's is between the writes of
its changelog, Quix's and Kafka Streams' from their first record to their last.
"""

from __future__ import annotations

import asyncio
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.anchors.kafka_streams import available, kafka_streams
from bench.anchors.plain_faust import GROUP
from bench.anchors.quix_streams import quix_streams
from bench.support.measuring import (
    Running,
    bench_command,
    echo,
    frames,
    fresh_stack,
    produce,
    wait_until,
    worker_environment,
)
from bench.support.repeating import ratio, repeated
from deploy.local import Addresses
from deploy.local.ports import HOST, Ports
from processing.state.rows import PARTITION_KEY
from topics.catalogue import CHANGELOG, EVENTS, THRESHOLDS_GROUP
from topics.kafka.groups import committed_offsets
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_states import describe_topics

REPEAT: Final = 5
PATIENCE_S: Final = 3_600.0
LOOK_S: Final = 0.02
PLAIN_EVENTS: Final = 20_000
QUIX_SHARE: Final = 5
"""Quix gets a fifth of the backlog: its rate does not depend on the length."""
PLAIN_CHANGELOG: Final = f"{GROUP}-contexts-changelog"


class ProcessCase(NamedTuple):
    """One backlog, and the worker's configuration."""

    name: str
    share: float = 1.0
    """Share of the requested events."""
    per_record: int = 1
    filled: bool = True
    """Kafka batches well filled, or one record each."""
    contexts: int = 200
    learner: str = "ema"
    levels: str = ""
    """Context keys below the workflow type, coarse to fine."""


FIRST: Final = ProcessCase("one event per record")
SLOW: Final = ProcessCase("one record per Kafka batch", share=0.2, filled=False)
OTHERS: Final = (
    ProcessCase("frames of 7", per_record=7),
    ProcessCase("frames of 200", per_record=200),
    ProcessCase("10,000 contexts", contexts=10_000),
    ProcessCase("default learner", share=0.4, learner="default"),
    ProcessCase("default learner, frames of 200", share=0.4, per_record=200, learner="default"),
    ProcessCase("full path", share=0.4, learner="default", levels="domain,user_id"),
)
LEAST: Final = {"kafka_streams": 120_000, "naive": 3_000}
"""Least events/s of anchors on an idle machine with two cores; a lower figure is suspect."""


def run(kafka: str, count: int = 2_000_000, repeat: int = REPEAT) -> dict[str, Any]:
    """Return the medians; each repetition has a new broker and backlog."""
    cases = [
        _case(kafka, case, count, repeat, anchors=case is FIRST) for case in (FIRST, SLOW, *OTHERS)
    ]
    first, slow = cases[:2]
    names = ("events_per_s", "ratio_naive", "ratio_quix", "ratio_kafka_streams")
    return {
        **{name: first[name] for name in names},
        "slow_producers_events_per_s": slow["events_per_s"],
        "slow_producers_ratio_kafka_streams": slow["ratio_kafka_streams"],
        "suspect_anchors": [
            name
            for name, least in LEAST.items()
            if (rate := first[f"{name}_events_per_s"]) is not None and rate < least
        ],
        "cases": cases,
        "framing": "JSON events of about 480 bytes, one context level; one event per record in "
        "filled batches unless noted otherwise; every side on the same topic, one after the other",
        "broker": kafka,
    }


def _case(
    kafka: str, case: ProcessCase, count: int, repeat: int, *, anchors: bool
) -> dict[str, Any]:
    events = round(count * case.share / case.per_record) * case.per_record
    echo(f"{case.name}: {events:,} events, {case.contexts:,} contexts, {case.learner}, on {kafka}")
    described = {name: value for name, value in case._asdict().items() if name != "share"}
    figures = repeated(lambda _: _measured(kafka, case, events, anchors=anchors), repeat)
    return {**described, "events": events, **figures}


def _measured(
    kafka: str, case: ProcessCase, events: int, *, anchors: bool
) -> dict[str, float | None]:
    """Measure a case: ours, and Kafka Streams if the records are single events."""
    found: dict[str, float | None] = {}
    with fresh_stack(kafka) as (addresses, folder):
        made = frames(events, case.per_record, case.contexts)
        records = asyncio.run(produce(addresses.kafka, made, filled=case.filled))
        if case.per_record == 1 and case.contexts == 200 and case.learner == "ema":
            streams = kafka_streams(addresses.kafka, folder, records) if available() else None
            found["kafka_streams_events_per_s"] = round(streams.processing) if streams else None
        if anchors:
            quix = quix_streams(addresses.kafka, folder, records // QUIX_SHARE)
            found["quix_events_per_s"] = round(quix)
            found["naive_events_per_s"] = round(_plain_faust(addresses, folder))
        rate = threshold_agent(addresses, folder, records, learner=case.learner, levels=case.levels)
    ours = round(rate * case.per_record)
    ratios = {
        f"ratio_{name.removesuffix('_events_per_s')}": ratio(ours, value)
        for name, value in found.items()
    }
    found |= {"events_per_s": ours, **ratios}
    echo(f"  {found}")
    return found


def threshold_agent(
    addresses: Addresses,
    folder: Path,
    records: int,
    module: str = "cli",
    learner: str = "ema",
    levels: str = "",
    login: Mapping[str, str] | None = None,
) -> float:
    """Return the records/s of a worker that drains the topic.

    `module`: its program. `login`: the settings by which it connects, if not by addresses alone.
    """
    ports = Ports(folder)
    health = f"{HOST}:{ports.reserve('agent')}"
    environment = worker_environment(
        addresses, folder / "agent", HEADSTART_LEARNER=learner, HEADSTART_LEVELS=levels,
        HEADSTART_HEALTH=health, **(login or {}),
    )  # fmt: skip
    argv = [sys.executable, "-P", "-m", module, "worker", "thresholds"]
    with Running(folder, "agent", argv, environment):
        ports.release()
        wait_until(lambda: _ready(health), PATIENCE_S, LOOK_S)
        begun = time.time()
        wait_until(lambda: asyncio.run(_done(addresses.kafka)) >= records, PATIENCE_S)
    return records / (asyncio.run(_last_commit(addresses.kafka)) - begun)


def _ready(health: str) -> bool:
    """Return whether a worker has opened its partitions."""
    try:
        with urllib.request.urlopen(f"http://{health}/readyz", timeout=10.0):
            return True
    except OSError:
        return False


async def _done(kafka: str) -> int:
    state = await topic_state(kafka, EVENTS.name)
    offsets = await committed_offsets(kafka, THRESHOLDS_GROUP, EVENTS.name, state.partitions)
    return sum(offsets.values())


async def _last_commit(kafka: str) -> float:
    """Return the time of the last checkpoint, Unix seconds."""
    state = await topic_state(kafka, CHANGELOG.name)
    records = read_records(kafka, CHANGELOG.name, state.begin, state.end)
    commits = [int(record.timestamp) async for record in records if record.key == PARTITION_KEY]
    return max(commits) / 1000


def _plain_faust(addresses: Addresses, folder: Path) -> float:
    """Return the events/s of plain Faust over its first writes."""
    argv = bench_command("bench.anchors.plain_faust", addresses.kafka, str(folder / "plain-data"))
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
