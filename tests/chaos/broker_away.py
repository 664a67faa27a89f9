"""The broker gone for a minute under load: what `emit()` took, and what arrived in which order."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.chaos.chaos import QUIET_S, Echo
from tests.chaos.checker import _whole_lines
from tests.chaos.executor import Work, command
from tests.chaos.services import services
from topics.catalogue import EVENTS
from topics.control.messages import is_control
from topics.epoch import ensure_topics
from topics.kafka.reader import read_records, topic_state

EXECUTORS = 3
PATIENCE_S = 300.0
LONG_NS = 10_000_000


@dataclass(frozen=True)
class Arrived:
    """What is on the log: different events, repeated ones, those out of their spool's order."""

    ids: frozenset[str]
    repeated: int
    disordered: int


def run(folder: Path, away_s: float, events_per_s: float, echo: Echo) -> dict[str, Any]:
    """Kill the broker for `away_s` seconds while executors emit; return the figures."""
    kafka = services(folder / "services")["kafka"]
    address = kafka.start()
    try:
        asyncio.run(ensure_topics(address, partitions=4))
        works = [_work(folder, address, events_per_s / EXECUTORS, n) for n in range(EXECUTORS)]
        running = [subprocess.Popen(command(work)) for work in works]
        try:
            time.sleep(QUIET_S)
            kafka.kill()
            echo(f"the broker is gone for {away_s:.0f} s")
            time.sleep(away_s)
            kafka.start()
            time.sleep(QUIET_S)
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(60)
        _drain(folder / "spool")
        emitted = {line for work in works for line in _whole_lines(Path(work.journal))}
        arrived = asyncio.run(_arrived(address))
    finally:
        kafka.close()
    return {
        "away_s": away_s,
        "events": len(emitted),
        "lost": len(emitted - arrived.ids),
        "repeated": arrived.repeated,
        "disordered": arrived.disordered,
        **_taken(works),
    }


def _work(folder: Path, kafka: str, events_per_s: float, number: int) -> Work:
    files = folder / f"journal-{number}", folder / f"timings-{number}"
    spool = str(folder / "spool")
    return Work(kafka, spool, "away", str(files[0]), events_per_s, number, str(files[1]))


def _drain(spool: Path) -> None:
    argv = ["-m", "cli", "ship", "--spool", str(spool), "--drain"]
    subprocess.run([sys.executable, *argv], check=True, timeout=PATIENCE_S)


async def _arrived(kafka: str) -> Arrived:
    state = await topic_state(kafka, EVENTS.name)
    last: dict[tuple[str, str], int] = {}
    ids: set[str] = set()
    repeated = disordered = 0
    async for record in read_records(kafka, EVENTS.name, state.begin, state.end):
        if is_control(record.headers):
            continue
        for event in orjson.loads(record.value):
            spool, position = event["origin"]
            place = spool, event["workflow_type"]
            if event["id"] in ids:
                repeated += 1
                continue
            # New, and yet not above the last: a receiver would take it for a repetition.
            disordered += position <= last.get(place, -1)
            last[place] = max(position, last.get(place, -1))
            ids.add(event["id"])
    return Arrived(frozenset(ids), repeated, disordered)


def _taken(works: Sequence[Work]) -> dict[str, float]:
    """Return quantiles, in ms, of `emit()` and of the bare writes that took turns with it.

    `over_10_ms` counts those that took longer; `waited` those of them that waited for something.
    The others never stopped: the scheduler gave the processor to other processes.
    """
    found = [json.loads(Path(work.timings).read_text()) for work in works]
    # The first of each process opens its spool and starts a thread.
    figures = {"first_emit_max_ms": round(max(each[0][0][0] for each in found) / 1e6, 3)}
    for place, name in enumerate(("emit", "bare_write")):
        calls = sorted((took, waited) for each in found for took, waited in each[place][1:])
        for label, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)):
            at = min(len(calls) - 1, int(len(calls) * share))
            figures[f"{name}_{label}_ms"] = round(calls[at][0] / 1e6, 3)
        long = [waited for took, waited in calls if took > LONG_NS]
        figures |= {f"{name}_over_10_ms": len(long), f"{name}_waited": sum(map(bool, long))}
        waits = [took for took, waited in calls if waited]
        figures[f"{name}_longest_wait_ms"] = round(max(waits, default=0) / 1e6, 3)
    return figures
