"""Whether an event costs more the longer the history is: threshold agent, the same contexts on.

To be run in parts: each run on the same `--data` appends `--events` to the log and learns them from
the table that the last one left, in one process; what each stretch of events cost is kept in
`history.jsonl` there. The first stretch of all is compared with the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

from bench.support.backlog_run import BacklogSample, Workers, cost, drain
from bench.support.measuring import CONTEXTS, PARTITIONS, echo, events, produce
from bench.support.trend import trend
from deploy.local import Addresses, Stack, StackConfig
from deploy.system import prepare
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

STRETCH: Final = 1_000_000
"""Events whose cost is one figure; a quarter of the run where that is less."""
AT_LEAST: Final = 4
SPOOL: Final = "0193f5e2-7c1a-7123-8abc-0123456789ab"
"""One for all parts: a spool's positions are rows, and only the events are to become more."""
GOAL: Final = 20_000_000

Stretch = dict[str, float]
"""Number of its last event, CPU microseconds an event."""


def run(
    kafka: str, count: int = 2_000_000, data: Path | None = None, learner: str = "ema"
) -> dict[str, Any]:
    """Learn `count` more events; return the cost of every stretch so far.

    Raises `ValueError` where a directory is kept, but no log.
    """
    if data is not None and kafka == "embedded":
        raise ValueError("the embedded broker keeps no log: --kafka apache, or no --data")
    with TemporaryDirectory(prefix="headstart-bench-") as folder:
        home = (data or Path(folder)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        with Stack(StackConfig(data=home / "stack", kafka=kafka)) as stack:
            found = _part(stack.addresses, home, count, learner)
    return {
        **summary(found),
        "learner": learner,
        "framing": f"one event per record in filled, zstd-compressed batches; {CONTEXTS} contexts, "
        f"one level, {PARTITIONS} partitions; CPU time of the worker's process",
        "broker": kafka,
    }


def _part(addresses: Addresses, home: Path, count: int, learner: str) -> list[Stretch]:
    asyncio.run(prepare(addresses, PARTITIONS))
    begin = sum(asyncio.run(topic_state(addresses.kafka, EVENTS.name)).end.values())
    echo(f"{count:,} events after {begin:,}")
    # Compressed, or twenty million would be 10 GB.
    made = events(count, begin=begin, spool=SPOOL)
    asyncio.run(produce(addresses.kafka, made, compression="zstd"))
    looks = drain(addresses, home, count, Workers(learner=learner))
    kept = home / "history.jsonl"
    with kept.open("ab") as file:
        for stretch in _stretches(looks, begin, min(STRETCH, count // AT_LEAST)):
            echo(f"  up to event {stretch['event']:,.0f}: {stretch['cpu_us']:.2f} us of CPU each")
            file.write(orjson.dumps(stretch) + b"\n")
    return [orjson.loads(line) for line in kept.read_bytes().splitlines()]


def _stretches(looks: Sequence[BacklogSample], begin: int, length: int) -> list[Stretch]:
    """Return the cost of each whole stretch of a run, whose first event is number `begin`."""
    edges = [looks[0]]
    for each in looks:
        if each.events >= edges[-1].events + length:
            edges.append(each)
    return [
        {"event": float(begin + after.events), "cpu_us": round(cost((before, after)).cpu_us, 3)}
        for before, after in pairwise(edges)
    ]


def summary(stretches: Sequence[Stretch]) -> dict[str, Any]:
    """Return how the cost of an event changed from the first stretch to the last.

    `fitted_growth` is that of a line through all of them, from the first event to the
    20-millionth, with half its 95 % interval. Raises `ValueError` where there is no stretch.
    """
    if not stretches:
        raise ValueError("the worker was through before it was looked at twice: more --events")
    line = trend([(each["event"], each["cpu_us"]) for each in stretches])
    first, last = stretches[0], stretches[-1]
    return {
        "events": round(last["event"]),
        "first_cpu_us": first["cpu_us"],
        "last_cpu_us": last["cpu_us"],
        "growth": round(last["cpu_us"] / first["cpu_us"] - 1, 3),
        "fitted_growth": round(line.slope * GOAL / first["cpu_us"], 3),
        "fitted_growth_error": round(line.error * GOAL / first["cpu_us"], 3)
        if len(stretches) > 2
        else None,
        "stretches": list(stretches),
    }
