"""The cost of capturing an event for an executor, and the throughput of one shipper.

`emit()` runs at 1,000 events/s with the shared shipper, next to the end of an OpenTelemetry span
(BatchSpanProcessor) and to a bare `json.dumps` with one unbuffered write. Kinds take turns, each in
a separate process that computes between two events or (`idle_`) sleeps. Several threads or
processes sleep.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import timeit
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from bench.support.emit_process import FIELDS
from bench.support.measuring import bench_command, cpu_s, echo, fresh_stack, shipping
from headstart import Emitter, Scrubbing, SpoolSettings
from headstart.scrubbing.scrubber import Scrubber

ROUNDS = 3
PATIENCE_S = 600.0


def run(kafka: str, count: int = 15_000) -> dict[str, Any]:
    """Return the figures: `count` paced events of each kind, ten times as many unpaced."""
    with fresh_stack(kafka) as (addresses, folder):
        latencies = _latencies(addresses.kafka, folder, count)
        scrubbed, scrubbed_cpu = _shipped(addresses.kafka, folder, 10 * count, Scrubbing())
        echo(f"one shipper, scrubbing: {scrubbed:,.0f} events/s, {scrubbed_cpu:.1f} us of CPU each")
        plain, plain_cpu = _shipped(addresses.kafka, folder, 10 * count, Scrubbing("off"))
        echo(f"one shipper, not scrubbing: {plain:,.0f} events/s, {plain_cpu:.1f} us of CPU each")
    return {
        **latencies,
        "shipped_events_per_s": round(scrubbed),
        "shipped_unscrubbed_events_per_s": round(plain),
        "shipper_cpu_us": round(scrubbed_cpu, 1),
        "shipper_unscrubbed_cpu_us": round(plain_cpu, 1),
        **_scrubbing(),
        "framing": "latencies at 1,000 events/s, busy or idle between; shipped: emit() in a tight "
        "loop of one process beside one shared shipper, one key",
        "events": count,
        "broker": kafka,
    }


def _latencies(kafka: str, folder: Path, count: int) -> dict[str, Any]:
    kinds = ["durable", "bare", "memory", *(["otel"] if find_spec("opentelemetry.sdk") else [])]
    names = {"durable": "emit", "memory": "memory_emit", "bare": "bare", "otel": "otel_end"}
    taken: dict[str, list[int]] = {}
    for _ in range(ROUNDS):
        for kind in kinds:
            for pace, before in (("busy", ""), ("idle", "idle_")):
                times = _timed(folder, [kind], kafka, count // ROUNDS, pace=pace)
                taken.setdefault(before + names[kind], []).extend(times)
    taken["threads8"] = _timed(folder, ["durable"], kafka, count // ROUNDS, threads=8)
    taken["processes4"] = _timed(folder, ["durable"] * 4, kafka, count // ROUNDS)
    figures: dict[str, Any] = {}
    for name, times in taken.items():
        for label, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
            figures[f"{name}_{label}_us"] = round(_quantile(times, share) / 1000, 1)
        echo(f"{name}: {[figures[f'{name}_{label}_us'] for label in ('p50', 'p99', 'p999')]} us")
    if "otel_end" not in taken:
        figures["otel"] = "not installed: pip install opentelemetry-sdk"
    for ratio, name, to in (
        ("ratio_bare", "emit", "bare"),
        ("ratio_idle_bare", "idle_emit", "idle_bare"),
        ("ratio_threads8", "threads8", "idle_emit"),
        ("ratio_processes4", "processes4", "idle_emit"),
    ):
        figures[ratio] = round(figures[f"{name}_p50_us"] / figures[f"{to}_p50_us"], 2)
    return figures


def _quantile(times: list[int], share: float) -> int:
    return sorted(times)[int(len(times) * share)]


def _timed(
    folder: Path, kinds: list[str], kafka: str, count: int, *, threads: int = 1, pace: str = "idle"
) -> list[int]:
    """Return the nanoseconds that each call took, of processes that run at the same time."""
    environment = _environment(folder)
    running = [
        subprocess.Popen(
            bench_command(
                "bench.support.emit_process", kind, kafka, str(count), str(threads), pace
            ),
            env=environment,
            stdout=subprocess.PIPE,
        )
        for kind in kinds
    ]
    times: list[int] = []
    for process in running:
        out, _ = process.communicate(timeout=PATIENCE_S)
        if process.returncode:
            raise RuntimeError(f"an executor ended with {process.returncode}")
        times += json.loads(out)
    return times


def _environment(folder: Path) -> Mapping[str, str]:
    spool = folder / "spool"
    return {**os.environ, "HEADSTART_SPOOL": str(spool), "HEADSTART_SHIPPER": "process"}


def _shipped(kafka: str, folder: Path, count: int, scrubbing: Scrubbing) -> tuple[float, float]:
    """Return events/s from the first `emit()` to the last acknowledgement, shipper warm.

    And the CPU time of shipping one in µs, which does not depend on other load.
    """
    settings = SpoolSettings(folder / f"spool-{scrubbing.where}", on_full="block")
    with Emitter(kafka, spool=settings, shipper="process", scrub=scrubbing) as emitter:
        emitter.emit(FIELDS)
        emitter.flush(PATIENCE_S)
        shipper = shipping(settings.directory)
        begun, before = time.perf_counter(), cpu_s(shipper)
        for _ in range(count):
            emitter.emit(FIELDS)
        emitter.flush(PATIENCE_S)
        rate = count / (time.perf_counter() - begun)
        return rate, (cpu_s(shipper) - before) / count * 1e6


def _scrubbing() -> dict[str, float]:
    """Return what one event costs the scrubber, in microseconds of CPU."""
    scrubber = Scrubber(Scrubbing())
    ids = "0193f5e2-7c1a-7123-8abc-0123456789ab"
    clean = {**FIELDS, "id": ids, "timestamp": 1_800_000_000_000, "origin": [ids, 1]}
    secret = {**FIELDS["data"], "query": "curl -H 'Authorization: Bearer abc123def456' https://x"}
    figures = {}
    for name, event in (("clean", clean), ("dirty", {**clean, "data": secret})):
        body = orjson.dumps(event)
        clock = timeit.Timer(lambda body=body: scrubber(body), timer=time.process_time)  # type: ignore[misc]
        figures[f"scrub_{name}_us"] = round(min(clock.repeat(5, 2_000)) / 2_000 * 1e6, 1)
    return {**figures, "event_bytes": len(orjson.dumps(clean))}
