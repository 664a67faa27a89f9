"""How full frames are where many slow executors share one shipper: 100 at 5 events/s, linger 50 ms.

The executors are forks of one process, which has imported everything: a hundred interpreters would
not fit beside the measured processes. Each fork has its own spool, as any process.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any, Final

import orjson

from bench.support.emit_process import FIELDS
from bench.support.measuring import cpu_s, echo, fresh_stack, shipping
from headstart import Emitter
from topics.catalogue import EVENTS
from topics.kafka.reader import read_records, topic_state

EXECUTORS: Final = 100
EACH_PER_S: Final = 5.0
LINGERS_S: Final = (0.005, 0.05)
PATIENCE_S: Final = 120.0


def run(kafka: str, count: int = 10_000) -> dict[str, Any]:
    """Return events per frame and the shipper's CPU per event, for each linger."""
    figures: dict[str, Any] = {"events": count, "executors": EXECUTORS, "broker": kafka}
    for linger_s in LINGERS_S:
        label = f"linger_{linger_s * 1000:.0f}_ms"
        with fresh_stack(kafka) as (addresses, folder):
            cpu_us = _emit(addresses.kafka, folder / "spool", linger_s, count)
            sizes = asyncio.run(_frames(addresses.kafka))
        del sizes[0]  # the one that started the shipper
        if sum(sizes) != count:
            raise RuntimeError(f"{sum(sizes)} of {count} events are on the log")
        figures[f"{label}_events_per_frame"] = round(sum(sizes) / len(sizes), 1)
        figures[f"{label}_shipper_cpu_us"] = round(cpu_us, 1)
        echo(f"{label}: {sum(sizes)} events in {len(sizes)} frames, {cpu_us:.0f} us of CPU each")
    return figures


def _emit(kafka: str, spool: Path, linger_s: float, count: int) -> float:
    """Have `count` events emitted; return the microseconds of CPU that shipping one took."""
    emitter = Emitter(kafka, spool=spool, shipper="process", linger_s=linger_s)
    emitter.emit(FIELDS)  # starts the shipper
    emitter.flush(PATIENCE_S)
    begin_at = time.monotonic() + 5.0  # by then all are there
    children = [_fork(emitter, number, begin_at, count // EXECUTORS) for number in range(EXECUTORS)]
    time.sleep(max(0.0, begin_at - time.monotonic()))
    shipper = shipping(spool)
    before = cpu_s(shipper)
    for child in children:
        if os.waitpid(child, 0)[1]:
            raise RuntimeError("an executor failed")
    taken = cpu_s(shipper) - before
    emitter.close(PATIENCE_S)
    return taken / count * 1e6


def _fork(emitter: Emitter, number: int, begin_at: float, count: int) -> int:
    """Start one executor; its pace is shifted against the others'."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        due = begin_at + number / EXECUTORS / EACH_PER_S
        for _ in range(count):
            time.sleep(max(0.0, due - time.monotonic()))
            emitter.emit(FIELDS)
            due += 1.0 / EACH_PER_S
        emitter.close(PATIENCE_S)
        status = 0
    finally:
        os._exit(status)


async def _frames(kafka: str) -> list[int]:
    state = await topic_state(kafka, EVENTS.name)
    return [
        len(orjson.loads(record.value))
        async for record in read_records(kafka, EVENTS.name, state.begin, state.end)
    ]
