"""Threshold workers that drain a backlog, seen by their own `/metrics` while they do.

CPU time an event is the figure to compare where cores are shared: it hardly depends on who else
computes. It comes from the same answer as the count of events, so both belong to one moment.

A worker that stood still for longer than its session ends itself, as it must: on a machine that
gives it no time that happens. It is started again, and the looks begin anew.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from bench.support.cpu_quota import join, share
from bench.support.measuring import Running, say, worker_environment
from deploy.local import Addresses, StackError
from deploy.local.ports import HOST, Ports
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

LOOK_S: Final = 0.25
PATIENCE_S: Final = 3_600.0
MOST_RESTARTS: Final = 20
_APPLIED: Final = 'headstart_applied_offset{partition="'


class BacklogSample(NamedTuple):
    """What one worker, or all of them together, had done at a moment."""

    at: float
    """Seconds."""
    events: int
    cpu_s: float
    resident_mb: float
    """The largest worker's."""
    applied: Mapping[int, int] = {}
    """Offset below which all took effect, of each partition that is owned; a second old."""


@dataclass(frozen=True)
class Workers:
    """How many, and how they learn."""

    count: int = 1
    learner: str = "ema"
    levels: str = ""
    """Context keys below the workflow type."""
    cores: float | None = None
    """Most that each of them may take; None: what there is."""


def look(port: int) -> BacklogSample | None:
    """Ask a worker at its health port; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10.0) as answer:
            text = answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    values = {name: float(value) for name, _, value in lines}
    return BacklogSample(
        time.monotonic(),
        int(values["headstart_events_total"]),
        values["process_cpu_seconds_total"],
        values["process_resident_memory_bytes"] / 1e6,
        {
            int(name.removeprefix(_APPLIED).removesuffix('"}')): int(value)
            for name, value in values.items()
            if name.startswith(_APPLIED)
        },
    )


def together(looks: Sequence[BacklogSample]) -> BacklogSample:
    """Return the workers as one."""
    applied: dict[int, int] = {}
    for partition, done in (found for each in looks for found in each.applied.items()):
        applied[partition] = max(done, applied.get(partition, 0))
    return BacklogSample(
        looks[-1].at,
        sum(each.events for each in looks),
        sum(each.cpu_s for each in looks),
        max(each.resident_mb for each in looks),
        applied,
    )


def drain(addresses: Addresses, folder: Path, events: int, workers: Workers) -> list[BacklogSample]:
    """Run workers until all that is in the log took effect; return the looks taken meanwhile.

    From the first at which each of them had partitions of its own up to the first that shows all,
    which counts as `events`. Raises `TimeoutError`, `StackError` where a worker ends again and
    again, and `ValueError` where all was through before it was looked at.
    """
    ends = asyncio.run(topic_state(addresses.kafka, EVENTS.name)).end
    ports = Ports(folder)
    with ExitStack() as stack:
        stack.callback(ports.release)
        groups = [
            None if workers.cores is None else stack.enter_context(share(workers.cores))
            for _ in range(workers.count)
        ]
        started = [
            stack.enter_context(_Worker(addresses, folder, number, workers, ports, group))
            for number, group in enumerate(groups)
        ]
        return finished(_watch(started, ends), events)


class _Worker:
    """A worker process, started again where it ends by itself."""

    def __init__(
        self,
        addresses: Addresses,
        folder: Path,
        number: int,
        workers: Workers,
        ports: Ports,
        group: Path | None,
    ) -> None:
        self._folder, self._name, self._group = folder, f"agent-{number}", group
        self.port = ports.reserve(self._name)
        self._environment = worker_environment(
            addresses,
            folder / self._name,
            HEADSTART_INSTANCE=str(number),
            HEADSTART_HEALTH=f"{HOST}:{self.port}",
            HEADSTART_LEARNER=workers.learner,
            HEADSTART_LEVELS=workers.levels,
            HEADSTART_MOST_CONTEXTS="10000000",  # none goes: their number is what is measured
        )
        self._restarts = 0
        self._life = self._start()

    def _start(self) -> Running:
        argv = [sys.executable, "-P", "-m", "cli", "worker", "thresholds"]
        life = Running(self._folder, self._name, argv, self._environment)
        if self._group is not None:
            join(self._group, life.process)
        return life

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._life.__exit__(*error)

    def ended(self) -> bool:
        """Return whether it had ended, and start it again. Raises `StackError` when too often."""
        try:
            self._life.check()
        except StackError as error:
            if self._restarts == MOST_RESTARTS:
                raise
            self._restarts += 1
            say(f"{error}\nstarting it again: what was measured until now does not count")
            self._life.__exit__(None, None, None)
            self._life = self._start()
            return True
        return False


def _watch(workers: Sequence[_Worker], ends: Mapping[int, int]) -> list[BacklogSample]:
    looks: list[BacklogSample] = []
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if any(each.ended() for each in workers):
            looks.clear()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not drained after {PATIENCE_S:.0f} s: {looks[-1:]}")
        answers = [found for each in workers if (found := look(each.port)) is not None]
        if shared(answers, len(workers)):
            looks.append(together(answers))
        if answers and through(together(answers).applied, ends):
            return looks
        time.sleep(LOOK_S)


def shared(answers: Sequence[BacklogSample], workers: int) -> bool:
    """Return whether every worker has answered, and has partitions that no other has.

    Nothing is under way then, of which the work would count for later events.
    """
    owners = Counter(partition for each in answers for partition in each.applied)
    return (
        len(answers) == workers
        and all(each.applied for each in answers)
        and max(owners.values()) == 1
    )


def through(applied: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Return whether everything up to `ends` took effect."""
    return all(applied.get(partition, 0) >= end for partition, end in ends.items())


def finished(looks: Sequence[BacklogSample], events: int) -> list[BacklogSample]:
    """Return the looks up to the first that shows all, their events counted to be `events` then.

    Raises `ValueError` where there is none.
    """
    if not looks:
        raise ValueError("the backlog was through before all workers shared it: more --events")
    last = looks[-1].events
    kept = [each for each in looks if each.events < last]
    kept += looks[len(kept) : len(kept) + 1]
    return [each._replace(events=events - last + each.events) for each in kept]


class Cost(NamedTuple):
    """What draining came to, between two looks."""

    events_per_s: float
    cpu_us: float
    """CPU time an event, of all workers."""
    resident_mb: float


def cost(looks: Sequence[BacklogSample]) -> Cost:
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
