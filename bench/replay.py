"""Six policies over an export of a million events: what replay reads, and what it judges.

Events as in `measuring`, in frames of 50, over eight partitions and 200 workflow types; one
policy-event is one event judged by one policy through four levels. Rates are of wall time over all
processes; per second of CPU beside them, for machines that do other work too.
"""

from __future__ import annotations

import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.support.measuring import echo, frames
from processing.records.batch import RecordBatch
from processing.records.decode import decode_record
from replay.execution.runner import Backtest, named, run_backtest
from replay.results.summary import report
from replay.sources.base import ReadOptions
from replay.sources.export_file import FORMAT, ExportHeader, ExportSource, Writer, read_export
from topics.catalogue import EVENTS

POLICIES: Final = ("fixed", "ema", "td", "sliding", "aci", "hops")
PER_FRAME: Final = 50
PARTITIONS: Final = 8
EVENTS_COUNT: Final = 1_000_000
_MB: Final = 1024  # ru_maxrss is in kB on Linux


def run(_kafka: str = "", events: int = EVENTS_COUNT) -> dict[str, Any]:
    """Return the figures; reading is of a file, so no broker is needed."""
    with TemporaryDirectory(prefix="headstart-bench-") as folder:
        file = Path(folder) / "log.jsonl.zst"
        echo(f"writing {events} events")
        write(file, events)
        echo("reading and decoding alone")
        reading = _read_alone(file)
        echo(", ".join(POLICIES))
        judging = _judge(file)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / _MB
    return {
        "events": events,
        "events_per_frame": PER_FRAME,
        "cores": len(os.sched_getaffinity(0)),
        "policies_run": list(POLICIES),
        **reading,
        **judging,
        "largest_process_mb": round(largest),
        "resident_mb": round(
            largest * min(PARTITIONS, len(os.sched_getaffinity(0)))
            + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MB
        ),
    }


def write(file: Path, events: int) -> None:
    """Write an export of so many events."""
    next_offset: dict[int, int] = {}
    now = time.time_ns() // 1_000_000
    with Writer(file, ExportHeader(FORMAT, 1, PARTITIONS, "python -m bench replay")) as writer:
        for partition, key, value in frames(events, PER_FRAME):
            at = next_offset.get(partition, 0)
            next_offset[partition] = at + 1
            writer.add(
                RecordBatch(
                    EVENTS.name, partition, at, at + 1, [at], [now + events], [key], [value]
                )
            )


def _read_alone(file: Path) -> dict[str, float]:
    units = ExportSource(file, ReadOptions()).units()
    context, cores = get_context("spawn"), min(len(units), len(os.sched_getaffinity(0)))
    ready = context.Barrier(cores + 1)
    pool = ProcessPoolExecutor(cores, mp_context=context, initializer=_begin, initargs=(ready,))
    with pool:
        futures = [pool.submit(_decode, file, unit) for unit in units]
        ready.wait()
        began = time.monotonic()
        found = [future.result() for future in futures]
        seconds = time.monotonic() - began
    count, cpu = sum(events for events, _ in found), sum(used for _, used in found)
    return {
        "read_events_per_s": round(count / seconds),
        "read_events_per_cpu_s": round(count / cpu),
    }


def _begin(ready: Barrier) -> None:
    """Wait until every process is there: what starting them takes is no part of reading."""
    ready.wait()


def _decode(file: Path, unit: int) -> tuple[int, float]:
    """Return how many events a unit has, and the seconds of CPU that reading them took."""
    before = time.process_time()
    events = sum(
        len(decode_record(value, at)[0])
        for batch, _ in read_export(file, unit)
        for value, at in zip(batch.values, batch.timestamps, strict=True)
    )
    return events, time.process_time() - before


def _judge(file: Path) -> dict[str, Any]:
    work = Backtest(ExportSource(file, ReadOptions()), named(POLICIES))
    began, before = time.monotonic(), _cpu_of_children()
    units = run_backtest(work, lambda _: None)
    seconds, cpu = time.monotonic() - began, _cpu_of_children() - before
    found = report("bench", work.policies, units)
    judged = found["outcomes"] * len(POLICIES)
    return {
        "policy_events_per_s": round(judged / seconds),
        "policy_events_per_cpu_s": round(judged / cpu),
        "seconds": round(seconds, 2),
        "contexts": found["contexts_known"],
    }


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
