"""Latency from `emit()` until the learned threshold is in a reader's cache, under load.

The whole pipeline runs: executors, their shared spool and shipper, broker, every worker, Redis, and
a reader in a separate process. Executors have disjoint contexts, so that the nth outcome of a
context is its nth event; both sides read the machine's monotonic clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import headstart
from bench.support.measuring import echo
from bench.support.paced_load import CONTEXTS, FORK, WORKFLOW_TYPES, Load, context, emit, paced
from bench.support.repeating import repeated
from deploy.local import StackConfig
from deploy.system import System

REPEAT: Final = 5
PROBES: Final = frozenset(10 * each + each // 2 for each in range(WORKFLOW_TYPES))
"""Contexts whose events are timed: one of each workflow type, and spread, because at an even pace
the events of a context always come at the same time of a linger."""
SECONDS: Final = 20.0
WARM_UP_S: Final = 6.0
"""Events emitted before this are not counted."""
LOOK_EVERY_S: Final = 0.002
"""Polling interval: latencies are too long by up to this; polling more often would take CPU time
from the measured processes."""
SETTLE_S: Final = 10.0
"""Where not everything is visible so long after the last event, the load was too high."""

Sent = dict[int, list[float]]
"""When each event of a probed context was emitted."""
Seen = dict[int, list[tuple[float, int]]]
"""When the mirror showed how many outcomes of a probed context."""

LOADS: Final = (
    Load("idle", 100, 4),
    Load("", 5_000, 4),
    Load("high", 20_000, 4),
    Load("many_idle", 100, 50),
    Load("many", 5_000, 50),
    Load("many_high", 20_000, 50),
)


def run(kafka: str, repeat: int = REPEAT) -> dict[str, Any]:
    """Return the quantiles of every load, in milliseconds: medians of several runs."""

    def every_load(number: int) -> dict[str, float | None]:
        figures: dict[str, float | None] = {}
        for load in LOADS:
            found = _quantiles(_measured(kafka, load))
            prefix = f"{load.name}_" if load.name else ""
            figures |= {f"{prefix}{name}": value for name, value in found.items()}
            echo(f"round {number + 1}, {load}: {found}")
        return figures

    return {
        **repeated(every_load, repeat),
        "loads": [load._asdict() for load in LOADS],
        "framing": f"emit() to mirror, {SECONDS:.0f} s, {CONTEXTS} contexts of three levels, every "
        "worker running, defaults everywhere; executors and the watcher on the same cores; null: "
        "that load was more than the machine holds",
        "broker": kafka,
    }


def _quantiles(latencies: list[float] | None) -> dict[str, float | None]:
    if latencies is None:
        return {"p50_ms": None, "p99_ms": None, "timed": None}
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * share)] * 1000 for share in (0.5, 0.99))
    return {"p50_ms": round(p50, 1), "p99_ms": round(p99, 1), "timed": len(latencies)}


def _measured(kafka: str, load: Load) -> list[float] | None:
    """Return the latencies, in seconds, of the probed contexts' events; None: not held."""
    with TemporaryDirectory(prefix="headstart-bench-") as folder:
        path = Path(folder)
        os.environ |= {"HEADSTART_SPOOL": str(path / "spool"), "HEADSTART_SHIPPER": "process"}
        messages: list[str] = []
        system = System(StackConfig(data=path / "stack", kafka=kafka), echo=messages.append)
        with system:
            messages.clear()
            found = _timed(system.addresses.kafka, system.addresses.redis, load)
            system.check()
            for line in messages:  # of a worker that ended meanwhile: no load was too high
                echo(line)
            return found


def _timed(kafka: str, redis: str, load: Load) -> list[float] | None:
    begin = time.monotonic() + 1.0 + 0.05 * load.executors
    ours, theirs = FORK.Pipe()
    watcher = FORK.Process(target=_watch, args=(theirs, redis, begin))
    watcher.start()
    pipes = []
    for number in range(load.executors):
        mine, its = FORK.Pipe()
        FORK.Process(target=_execute, args=(its, kafka, load, number, begin)).start()
        pipes.append(mine)
    sent: Sent = {}
    for pipe in pipes:
        sent |= pipe.recv()
    ours.send({number: len(times) for number, times in sent.items()})
    seen: Seen | None = ours.recv()
    watcher.join()
    if seen is None:
        return None
    return [
        latency
        for number, times in sent.items()
        for latency in _latencies(times, seen[number], begin + WARM_UP_S)
    ]


def _latencies(
    sent: Sequence[float], seen: Sequence[tuple[float, int]], counted_from: float
) -> list[float]:
    """Return how long after each event the first look came that showed it."""
    found, looks = [], iter(seen)
    at, outcomes = next(looks)
    for place, emitted in enumerate(sent, 1):
        while outcomes < place:
            at, outcomes = next(looks)
        if emitted >= counted_from:
            found.append(at - emitted)
    return found


def _execute(pipe: Connection, kafka: str, load: Load, number: int, begin: float) -> None:
    """Emit this executor's share at a constant rate; return the times."""
    own = range(number, CONTEXTS, load.executors)
    sent: Sent = {each: [] for each in own if each in PROBES}
    with headstart.Emitter(kafka) as emitter:
        for each, event in paced(load, number, begin, begin + SECONDS):
            if each in PROBES:
                sent[each].append(time.monotonic())
            emit(emitter, each, event)
    pipe.send(sent)


def _watch(pipe: Connection, redis: str, begin: float) -> None:
    """Look at the probed contexts in the mirror until they show everything that was emitted.

    Sends the times at which thresholds became visible; None if not all did.
    """
    seen: Seen = {number: [(0.0, 0)] for number in PROBES}
    contexts = {number: context(number) for number in PROBES}
    wanted: dict[int, int] | None = None
    give_up = begin + SECONDS + 120.0
    with headstart.Thresholds(redis) as reader:
        while wanted is None or any(seen[n][-1][1] < wanted[n] for n in wanted):
            for number, each in contexts.items():
                answer = reader.get(each)
                if answer.outcomes > seen[number][-1][1] and "user_id" in answer.level:
                    seen[number].append((time.monotonic(), answer.outcomes))
            if wanted is None and pipe.poll():
                wanted = pipe.recv()
                give_up = time.monotonic() + SETTLE_S
            if time.monotonic() > give_up:
                pipe.send(None)
                return
            time.sleep(LOOK_EVERY_S)
    pipe.send(seen)
