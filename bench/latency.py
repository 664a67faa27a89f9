"""From `emit()` until what was learned is visible in a reader's mirror, under load.

The whole pipeline runs: executors, their shared spool and shipper, broker, every worker, Redis, a
reader's mirror in a process of its own. Each executor has contexts that no other has, so that the
nth outcome of a context is its own nth event; both sides read the machine's monotonic clock.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import headstart
from bench.measuring import say
from deploy.local import StackConfig
from deploy.system import System

WORKFLOW_TYPES: Final = 20
CONTEXTS: Final = 200
PROBES: Final = 20
"""Contexts whose events are timed, one in ten."""
SECONDS: Final = 20.0
WARM_UP_S: Final = 6.0
"""Events emitted before this are not counted."""
LOOK_EVERY_S: Final = 0.001
SETTLE_S: Final = 10.0
"""What is not visible so long after the last event is an error."""

Sent = dict[int, list[float]]
"""When each event of a probed context was emitted."""
Seen = dict[int, list[tuple[float, int]]]
"""When the mirror showed how many outcomes of a probed context."""


class Load(NamedTuple):
    """Events per second of all executors together, and how many those are."""

    name: str
    events_per_s: int
    executors: int


LOADS: Final = (
    Load("idle", 100, 4),
    Load("", 5_000, 4),
    Load("many", 5_000, 50),
    Load("high", 20_000, 4),
)


def run(kafka: str) -> dict[str, Any]:
    """Return the quantiles of every load, in milliseconds."""
    figures: dict[str, Any] = {}
    for load in LOADS:
        latencies = sorted(_measured(kafka, load))
        prefix = f"{load.name}_" if load.name else ""
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            figures[f"{prefix}{label}_ms"] = round(latencies[int(len(latencies) * share)] * 1000, 1)
        figures[f"{prefix}timed"] = len(latencies)
        say(f"{load}: p50 {figures[f'{prefix}p50_ms']} ms, p99 {figures[f'{prefix}p99_ms']} ms")
    return {
        **figures,
        "loads": [load._asdict() for load in LOADS],
        "framing": f"emit() to mirror, {SECONDS:.0f} s, {CONTEXTS} contexts of three levels, every "
        "worker running, defaults everywhere",
        "broker": kafka,
    }


def _measured(kafka: str, load: Load) -> list[float]:
    """Return the latencies, in seconds, of the probed contexts' events."""
    with TemporaryDirectory(prefix="headstart-bench-") as folder:
        path = Path(folder)
        os.environ |= {"HEADSTART_SPOOL": str(path / "spool"), "HEADSTART_SHIPPER": "process"}
        system = System(StackConfig(data=path / "stack", kafka=kafka), say=lambda _line: None)
        with system:
            return _timed(system.addresses.kafka, system.addresses.redis, load)


def _timed(kafka: str, redis: str, load: Load) -> list[float]:
    fork = multiprocessing.get_context("fork")  # fifty executors, imported once
    begin = time.monotonic() + 1.0 + 0.05 * load.executors
    ours, theirs = fork.Pipe()
    watcher = fork.Process(target=_watch, args=(theirs, redis, begin))
    watcher.start()
    pipes = []
    for number in range(load.executors):
        mine, its = fork.Pipe()
        fork.Process(target=_execute, args=(its, kafka, load, number, begin)).start()
        pipes.append(mine)
    sent: Sent = {}
    for pipe in pipes:
        sent |= pipe.recv()
    ours.send({context: len(times) for context, times in sent.items()})
    seen: Seen = ours.recv()
    watcher.join()
    return [
        latency
        for context, times in sent.items()
        for latency in _latencies(times, seen[context], begin + WARM_UP_S)
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


def _context(number: int) -> dict[str, Any]:
    return {
        "tenant": "bench",
        "workflow_type": f"workflow-{number % WORKFLOW_TYPES}",
        "user_id": f"user-{number}",
        "domain": "retail",
    }


def _execute(pipe: Connection, kafka: str, load: Load, number: int, begin: float) -> None:
    """Emit this executor's share at an even pace; say when what was emitted."""
    own = range(number, CONTEXTS, load.executors)
    sent: Sent = {context: [] for context in own if context < PROBES}
    gap = load.executors / load.events_per_s
    due = begin + number * gap / load.executors
    with headstart.Emitter(kafka) as emitter:
        event = 0
        while due < begin + SECONDS:
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            context = own[event % len(own)]
            if context < PROBES:
                sent[context].append(time.monotonic())
            _emit(emitter, context, event)
            event += 1
            due += gap
    pipe.send(sent)


def _emit(emitter: headstart.Emitter, number: int, event: int) -> None:
    context = _context(number)
    emitter.emit(
        event_type="task_complete",
        tenant=context["tenant"],
        workflow_type=context["workflow_type"],
        workflow_id=f"run-{number}-{event // 10}",
        task_id=str(event % 10),
        user_id=context["user_id"],
        tool_id="search",
        success=True,
        confidence=event * 0.618 % 1.0,
        data={
            "context": {"domain": context["domain"]},
            "prediction": {"was_correct": event % 5 > 0, "speculated": True},
            "result": {"execution_time_ms": 812.5, "gain_ms": 400.0, "cost_ms": 600.0},
        },
    )


def _watch(pipe: Connection, redis: str, begin: float) -> None:
    """Look at the probed contexts in the mirror until they show everything that was emitted."""
    seen: Seen = {number: [(0.0, 0)] for number in range(PROBES)}
    contexts = {number: _context(number) for number in range(PROBES)}
    wanted: dict[int, int] | None = None
    give_up = begin + SECONDS + 120.0
    with headstart.Thresholds(redis) as reader:
        while wanted is None or any(seen[n][-1][1] < wanted[n] for n in wanted):
            for number, context in contexts.items():
                answer = reader.get(context)
                if answer.outcomes > seen[number][-1][1] and "user_id" in answer.level:
                    seen[number].append((time.monotonic(), answer.outcomes))
            if wanted is None and pipe.poll():
                wanted = pipe.recv()
                give_up = time.monotonic() + SETTLE_S
            if time.monotonic() > give_up:
                raise TimeoutError(f"not everything became visible: {wanted}")
            time.sleep(LOOK_EVERY_S)
    pipe.send(seen)
