"""Threshold workers that drain a backlog, seen by their own `/metrics` while they do.

CPU time an event is the figure to compare where cores are shared: it hardly depends on who else
computes. It comes from the same answer as the count of events, so both belong to one moment.
"""

from __future__ import annotations

import http.client
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bench.measuring import Running, worker_environment
from deploy.local import Addresses
from deploy.local.ports import HOST, Ports

LOOK_S: Final = 0.25
PATIENCE_S: Final = 3_600.0


class Look(NamedTuple):
    """What one worker, or all of them together, had done at a moment."""

    at: float
    """Seconds."""
    events: int
    cpu_s: float
    resident_mb: float
    """The largest worker's."""


@dataclass(frozen=True)
class Workers:
    """How many, and how they learn."""

    count: int = 1
    learner: str = "ema"
    levels: str = ""
    """Context keys below the workflow type."""


def look(port: int) -> Look | None:
    """Ask a worker at its health port; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10.0) as answer:
            text = answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    values = {name: float(value) for name, _, value in lines}
    return Look(
        time.monotonic(),
        int(values["headstart_events_total"]),
        values["process_cpu_seconds_total"],
        values["process_resident_memory_bytes"] / 1e6,
    )


def together(looks: Sequence[Look]) -> Look:
    """Return the workers as one."""
    return Look(
        looks[-1].at,
        sum(each.events for each in looks),
        sum(each.cpu_s for each in looks),
        max(each.resident_mb for each in looks),
    )


def drain(addresses: Addresses, folder: Path, events: int, workers: Workers) -> list[Look]:
    """Run workers until they have counted so many events; return the looks taken meanwhile.

    From the first at which each of them had learned something, up to the first that shows all.
    Raises `TimeoutError`, and `RuntimeError` where a worker ended.
    """
    ports = Ports(folder)
    with ExitStack() as stack:
        started, found = [], []
        for number in range(workers.count):
            found.append(ports.reserve(f"agent-{number}"))
            environment = worker_environment(
                addresses,
                folder / f"agent-{number}",
                HEADSTART_INSTANCE=str(number),
                HEADSTART_HEALTH=f"{HOST}:{found[-1]}",
                HEADSTART_LEARNER=workers.learner,
                HEADSTART_LEVELS=workers.levels,
                HEADSTART_MOST_CONTEXTS="10000000",  # none goes: their number is what is measured
            )
            argv = [sys.executable, "-m", "cli", "worker", "thresholds"]
            running = Running(folder, f"agent-{number}", argv, environment)
            started.append(stack.enter_context(running))
        stack.callback(ports.release)
        return _watch(started, found, events)


def _watch(running: Sequence[Running], ports: Sequence[int], events: int) -> list[Look]:
    looks: list[Look] = []
    deadline = time.monotonic() + PATIENCE_S
    while not looks or looks[-1].events < events:
        for each in running:
            each.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not drained after {PATIENCE_S:.0f} s: {looks[-1:]}")
        answers = [found for port in ports if (found := look(port)) is not None]
        if len(answers) == len(ports) and all(each.events for each in answers):
            looks.append(together(answers))
        time.sleep(LOOK_S)
    return looks


class Cost(NamedTuple):
    """What draining came to, between two looks."""

    events_per_s: float
    cpu_us: float
    """CPU time an event, of all workers."""
    resident_mb: float


def cost(looks: Sequence[Look]) -> Cost:
    """Return the cost between the first and the last of some looks.

    Raises `ValueError` where nothing lies between them.
    """
    first, last = looks[0], looks[-1]
    events = last.events - first.events
    if not events:
        raise ValueError("the backlog was through at the first look: give more --events")
    return Cost(
        events / (last.at - first.at),
        (last.cpu_s - first.cpu_s) / events * 1e6,
        max(each.resident_mb for each in looks),
    )
