"""Runs threshold workers that drain a backlog, and samples their `/metrics` meanwhile.

On shared cores compare the CPU time per event, which hardly depends on other load. It is read in
the same response as the number of events, so both belong to one moment.

A worker that stalls for longer than its session exits, which happens on an overloaded machine. It
is restarted, and the samples are discarded.
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
from bench.support.measuring import Running, echo, worker_environment
from deploy.local import Addresses, StackError
from deploy.local.ports import HOST, Ports
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

LOOK_S: Final = 0.25
PATIENCE_S: Final = 3_600.0
MOST_RESTARTS: Final = 20
_APPLIED: Final = 'headstart_applied_offset{partition="'


class BacklogSample(NamedTuple):
    """Counters of one worker, or of all together, at one moment."""

    at: float
    """Seconds."""
    events: int
    cpu_s: float
    resident_mb: float
    """The largest worker's."""
    applied: Mapping[int, int] = {}
    """Offset below which all records are applied, by owned partition; up to a second old."""


@dataclass(frozen=True)
class Workers:
    """Number and configuration of the workers."""

    count: int = 1
    learner: str = "ema"
    levels: str = ""
    """Context keys below the workflow type."""
    cores: float | None = None
    """CPU quota of each; None: unlimited."""


def look(port: int) -> BacklogSample | None:
    """Read a worker's metrics; None while it does not answer."""
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
    """Return the sum over workers."""
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
    """Run workers until the whole log is applied; return the samples taken meanwhile.

    From the first sample at which each worker owned partitions up to the first with all events,
    which counts as `events`. Raises `TimeoutError`, `StackError` if a worker ends too often, and
    `ValueError` if the log was applied before the first sample.
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
    """A worker process, restarted if it exits."""

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
            HEADSTART_MOST_CONTEXTS="10000000",  # no eviction: their number is a parameter
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
        """Restart it if it has ended; return whether it had. Raises `StackError` at the limit."""
        try:
            self._life.check()
        except StackError as error:
            if self._restarts == MOST_RESTARTS:
                raise
            self._restarts += 1
            echo(f"{error}\nstarting it again: the samples until now do not count")
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
    """Return whether every worker has answered and each partition has one owner.

    Then no rebalance is in progress whose CPU time would count for later events.
    """
    owners = Counter(partition for each in answers for partition in each.applied)
    return (
        len(answers) == workers
        and all(each.applied for each in answers)
        and max(owners.values()) == 1
    )


def through(applied: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Return whether every record up to `ends` is applied."""
    return all(applied.get(partition, 0) >= end for partition, end in ends.items())


def finished(looks: Sequence[BacklogSample], events: int) -> list[BacklogSample]:
    """Return the samples up to the first with all events, shifted so that it has `events`.

    Raises `ValueError` if there are none.
    """
    if not looks:
        raise ValueError("the backlog was through before all workers shared it: more --events")
    last = looks[-1].events
    kept = [each for each in looks if each.events < last]
    kept += looks[len(kept) : len(kept) + 1]
    return [each._replace(events=events - last + each.events) for each in kept]


class Cost(NamedTuple):
    """The cost of draining between two samples."""

    events_per_s: float
    cpu_us: float
    """CPU time per event, of all workers."""
    resident_mb: float


def cost(looks: Sequence[BacklogSample]) -> Cost:
    """Return the cost between the first and the last sample.

    Raises `ValueError` if there are no events between them.
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
