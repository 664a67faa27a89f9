"""The demo from start to summary: system, executors, drain, invariants."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from demo.accounting import summarise
from demo.comparison import compare
from demo.executor import ADDRESSES, Assignment
from demo.invariants import Figures, check_invariants, gather
from demo.memory import memory_of
from demo.next_calls import GuessedRuns, with_arguments
from demo.redis_watcher import RedisWatcher
from demo.repeated import Repeats
from demo.traces import BrokenLine, TraceError, read_runs
from demo.versions import versions
from deploy.local import Addresses
from deploy.local.child_process import Child, Ending
from deploy.local.process_group import ProcessGroup
from deploy.system import total_lag, wait_drained
from headstart import Thresholds
from headstart.connections.kafka_security import UNSECURED, variable
from headstart.connections.own_security import own_security
from replay.files.input import name_of
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

READS = 3_000
DRAIN_S = 60.0
_ENDING = Ending(signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)


@dataclass(frozen=True)
class DemoConfig:
    """What to run. `events_per_s`: of all executors together."""

    data: Path
    executors: int = 4
    seconds: float = 30.0
    traces: Path | None = None
    refuse_broken: bool = False
    seed: int = 7
    events_per_s: float = 500.0
    cost_ratio: float = 0.6
    levels: tuple[str, ...] = ("domain", "user_id")


@dataclass(frozen=True)
class DemoResult:
    """The summary, and the invariants that broke."""

    summary: dict[str, Any]
    broken: list[str]
    shown: dict[str, Any]
    """The data of the report (`demo.report`), without `settings`."""


def check_traces(config: DemoConfig, echo: Callable[[str], None]) -> None:
    """Read the trace file once: name its broken lines, or refuse them. Raises `TraceError`."""
    if config.traces is None:
        return

    shown, refused = name_of(config.traces), list[str]()

    def name(broken: BrokenLine) -> None:
        refused.append(f"{shown}:{broken.line_number}: {broken.reason}")
        echo(f"{refused[-1]}; skipped")

    calls = runs = 0
    repeats, guessed = Repeats(), GuessedRuns()
    broken = None if config.refuse_broken else name
    for run in read_runs(config.traces, broken, with_content=True):
        if not repeats.first(run):
            continue
        runs, calls = runs + 1, calls + len(run.steps)
        guessed.count(whole=with_arguments(run) is not None)
    if not runs:
        first = f": all {len(refused)} lines were refused; the first: {refused[0]}"
        raise TraceError(f"{shown} holds no runs{first if refused else ''}")
    left = f"; {len(refused)} lines refused" if refused else ""
    echo(f"{shown}: {runs} runs, {calls} tool calls{left}")
    for sentence in (*guessed.sentences, *repeats.sentences):
        echo(f"{shown}: {sentence}")


def run_demo(
    config: DemoConfig,
    addresses: Addresses,
    epoch: int,
    check: Callable[[], None],
    echo: Callable[[str], None],
) -> DemoResult:
    """Run the workload on a running system. `check` raises if a part of it died."""
    tenant = f"demo-{secrets.token_hex(4)}"
    begun = time.monotonic()
    begin = asyncio.run(topic_state(addresses.kafka, EVENTS.name))
    with RedisWatcher(addresses.redis, tenant) as watcher:
        emitted = _run_executors(config, addresses, tenant, epoch, check, echo)
        echo("executors are done; draining")
        if lag := wait_drained(addresses, epoch, check, DRAIN_S):
            raise TimeoutError(f"the workers did not process {lag} records within {DRAIN_S:.0f} s")
        end = asyncio.run(topic_state(addresses.kafka, EVENTS.name))
    figures = asyncio.run(gather(addresses, tenant, config.levels, dict(begin.end), dict(end.end)))
    latencies = watcher.latencies_ms(figures.log.completions)
    reads = _read_latencies(addresses.redis, tenant, figures, config)
    invariants = check_invariants(emitted, figures)
    echo("asking the memory")
    memory = memory_of(addresses, tenant, begin.end, end.end, check)
    summary = {
        "tenant": tenant,
        "events_emitted": emitted,
        **_pipeline(figures, watcher.announced),
        **_quantiles("event_to_threshold", latencies, "ms"),
        **_quantiles("read", reads, "us"),
        **asdict(summarise(figures.log.judged)),
        "memory": memory,
        "seconds": round(time.monotonic() - begun, 1),
    }
    shown = compare(figures.log.judged) | {
        "drift_at": config.seconds / 2 if config.traces is None else None,
        "latencies_ms": latencies,
        "reads_us": reads,
        "invariants": invariants,
        "memory": memory,
        "versions": asyncio.run(versions(addresses)),
    }
    return DemoResult(summary, [why for each in invariants for why in each.broken], shown)


def _pipeline(figures: Figures, announced: int) -> dict[str, Any]:
    distinct = len(figures.stored_ids)
    return {
        "events_stored": figures.stored_rows,
        "events_missing": len(set(figures.log.ids) - figures.stored_ids),
        "events_duplicated": figures.stored_rows - distinct,
        "calls": figures.log.calls,
        "outcomes": len(figures.log.judged),
        "contexts": len(figures.served),
        "thresholds_published": announced,
        "dead_letters": figures.dead_letters,
    }


def _run_executors(
    config: DemoConfig,
    addresses: Addresses,
    tenant: str,
    epoch: int,
    check: Callable[[], None],
    echo: Callable[[str], None],
) -> int:
    """Run the executors until they finish; return how many events they emitted."""
    group = ProcessGroup(config.data.resolve())
    try:
        children = [
            _spawn(group, config, addresses, tenant, number) for number in range(config.executors)
        ]
        group.launched()
        reported_at = last = 0.0
        while any(child.alive for child in children):
            time.sleep(0.2)
            check()
            if time.monotonic() - reported_at >= 2.0:
                emitted = sum(_progress(child)["emitted"] for child in children)
                rate = (
                    max(0.0, (emitted - last) / (time.monotonic() - reported_at))
                    if reported_at
                    else 0.0
                )
                reported_at, last = time.monotonic(), emitted
                lag = asyncio.run(total_lag(addresses, epoch))
                echo(f"{emitted} events emitted, {rate:.0f}/s, {lag} records waiting")
        for child in children:
            child.finish(1.0, "see its log")
        return sum(_progress(child)["emitted"] for child in children)
    finally:
        group.close()


def _spawn(
    group: ProcessGroup, config: DemoConfig, addresses: Addresses, tenant: str, number: int
) -> Child:
    work = Assignment(
        kafka=addresses.kafka,
        redis=addresses.redis,
        spool=str(config.data.resolve() / "spool"),
        tenant=tenant,
        seed=config.seed,
        executor=number,
        executors=config.executors,
        events_per_s=config.events_per_s / config.executors,
        cost_ratio=config.cost_ratio,
        seconds=config.seconds,
        traces=None if config.traces is None else str(config.traces.resolve()),
        levels=config.levels,
    )
    name = f"executor-{number}"
    group.claim(name)
    given = asdict(work)
    # Not as an argument, which process lists show: a Redis URL may have a password.
    addresses_of = {f"HEADSTART_{each.upper()}": given.pop(each) for each in ADDRESSES}
    argv = [sys.executable, "-P", "-m", "demo.executor", json.dumps(given)]
    environment = {**os.environ, **addresses_of, **_plain_text()}
    return group.spawn(name, argv, _ENDING, env=environment)


def _plain_text() -> dict[str, str]:
    """Return the variable by which executors connect in plain text, if this process does."""
    if own_security() != UNSECURED:
        return {}
    return {variable("security_protocol"): UNSECURED.protocol}


def _progress(child: Child) -> dict[str, Any]:
    """Return an executor's last line of progress."""
    for line in reversed(child.tail()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {"emitted": 0}


def _read_latencies(
    redis_url: str, tenant: str, figures: Figures, config: DemoConfig
) -> list[float]:
    """Time reads of known contexts through the client, in microseconds."""
    contexts = [dict(part.split("=") for part in path.split("/")) for path in figures.served]
    found = []
    gc.freeze()  # excludes this process's copy of the log from collections during a read
    with Thresholds(redis_url, levels=config.levels) as reader:
        for number in range(READS):
            context = {"tenant": tenant, **contexts[number % len(contexts)]}
            begun = time.perf_counter()
            reader.get(context)
            found.append((time.perf_counter() - begun) * 1e6)
    return found[100:]  # the first ones connect


def _quantiles(name: str, values: Sequence[float], unit: str) -> dict[str, float | None]:
    if len(values) < 2:
        return {f"{name}_p50_{unit}": None, f"{name}_p99_{unit}": None}
    cuts = statistics.quantiles(values, n=100)
    return {f"{name}_p50_{unit}": round(cuts[49], 1), f"{name}_p99_{unit}": round(cuts[98], 1)}
