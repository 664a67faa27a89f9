"""Fills a system that runs without workers: tables, learned rows, Redis, and the end of the log.

Tables are filled by COPY in the form in which the sinks write, and the learned rows go to the
changelog as the state before this log. Real workers then take them over and publish them, store and
learn `TAIL` events, and are stopped, those that store last: the others send evidence of contexts to
the log until they end. As many more events stay in the log unprocessed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from agents.producer import BatchProducer
from agents.thresholds.checkpoint_writer import APPENDED_BYTES
from bench.support.learned_rows import CONTEXTS_OF_TYPE, MadeEvents, Row, learned_rows
from bench.support.measuring import echo, produce, wait_until, worker_environment
from bench.support.stored_events import fill_events, fill_history, make_days
from deploy.supervisor import Supervisor
from deploy.system import System, sink_lag, total_lag
from processing.state.chunking import chunk_rows
from processing.state.rows import CONTEXT
from topics.catalogue import CHANGELOG

LEARNING: Final = ("thresholds",)
STORING: Final = ("episodes", "history")
PATIENCE_S: Final = 1_800.0
TAIL: Final = 2_000
"""Events that workers process before the backup, and as many that wait in the log then."""


@dataclass(frozen=True)
class Filled:
    """What a filled system has. `events`: stored; `left`: only in the log."""

    events: int
    contexts: int
    history: int
    left: int
    epoch: int


def fill(system: System, events: int, contexts: int) -> Filled:
    """Fill an empty system, which is to have no workers; return what it has.

    `contexts` is rounded down to a multiple of those of a workflow type. Raises `ValueError` for
    fewer than one type, or events than `TAIL`.
    """
    if events <= TAIL or contexts < CONTEXTS_OF_TYPE:
        raise ValueError(f"more than {TAIL} events and at least {CONTEXTS_OF_TYPE} contexts")
    assert system.epoch is not None
    at, epoch = system.addresses, system.epoch
    made = MadeEvents(contexts // CONTEXTS_OF_TYPE, epoch.partitions)
    begun = time.monotonic()
    rows = learned_rows(made, epoch.number)
    echo(f"rows are learned, after {time.monotonic() - begun:.1f} s")
    begin = asyncio.run(make_days(at.postgres))
    fill_events(at.postgres, made, events - TAIL, begin)
    every = (row for of in rows.values() for row in of)
    steps = fill_history(at.postgres, every, epoch.number)
    asyncio.run(_send(at.kafka, rows))
    echo(f"tables and rows are filled, after {time.monotonic() - begun:.1f} s")
    tail = made.all_contexts
    now = time.time_ns() // 1_000_000
    with working(system, STORING):
        with working(system, LEARNING):
            echo(f"workers are ready, after {time.monotonic() - begun:.1f} s")
            asyncio.run(produce(at.kafka, made.sent(tail, tail + TAIL, now)))
            wait_for_workers(system)
        wait_until(lambda: asyncio.run(sink_lag(at, epoch.number)) == 0, PATIENCE_S)
    asyncio.run(produce(at.kafka, made.sent(tail + TAIL, tail + 2 * TAIL, now)))
    echo(f"the system is filled, after {time.monotonic() - begun:.1f} s")
    learned = sum(key.startswith(CONTEXT) for of in rows.values() for key, _row in of)
    return Filled(events, learned, steps, TAIL, epoch.number)


async def _send(kafka: str, rows: Mapping[int, list[Row]]) -> None:
    producer = BatchProducer(kafka)
    await producer.start()
    for partition, of in rows.items():
        for part in chunk_rows(of, APPENDED_BYTES):
            await producer.send_rows(CHANGELOG.name, partition, part)
    await producer.stop()


@contextmanager
def working(system: System, names: Sequence[str] = (*LEARNING, *STORING)) -> Iterator[None]:
    """Run workers, ready, as `headstart worker all` would run all."""
    environment: dict[str, Any] = {**worker_environment(system.addresses, system.data)}
    supervisor = Supervisor(system.data / "workers", environment, names)
    supervisor.start()

    def ready() -> bool:
        for line in supervisor.check():
            echo(line)
        return supervisor.ready

    try:
        wait_until(ready, PATIENCE_S)
        yield
    finally:
        supervisor.stop()


def wait_for_workers(system: System) -> None:
    """Wait until the workers have processed all of the log. Raises `TimeoutError`."""
    assert system.epoch is not None
    number = system.epoch.number
    wait_until(lambda: asyncio.run(total_lag(system.addresses, number)) == 0, PATIENCE_S)
