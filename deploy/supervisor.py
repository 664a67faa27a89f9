"""Runs worker processes, and restarts one when it exits or is stuck.

A worker that readers depend on has a spare: a loaded process that waits for the lock of the data
directory, which the kernel releases in the instant in which the worker exits. `agents.worker` is
the worker's program; `processing.worker_report` decides from its reports whether it is stuck.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.cpu_wait import cpu_wait_s
from deploy.last_error import why_log_ends
from deploy.local.child_process import Child, Ending
from deploy.local.process_group import ProcessGroup
from deploy.worker_reports import read_report
from processing.records.dlq_limits import EXIT_CODE
from processing.worker_report import (
    ALL_WORKERS,
    MEMORY,
    SPANS,
    STUCK_AFTER_S,
    Report,
    Watchdog,
)

# A worker may be killed at any time without losing state, so an orphan is killed.
_ENDING = Ending(ask=signal.SIGTERM, insist=signal.SIGTERM, orphaned=signal.SIGKILL)
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.5, 30.0
_HEALTHY_AFTER_S = 60.0
_OBSERVE_S: Final = 0.5
"""How often a worker is examined for being stuck: it reports once a second."""
SPARED: Final = ("thresholds",)
"""Workers with a spare: loading a worker's code takes seconds on a busy machine."""
_SPARE_AFTER_S: Final = 1.0
"""Delay from a worker's readiness to the start of its spare."""
_FALSE: Final = ("0", "f", "false", "n", "no", "off")
"""As pydantic reads a setting."""
_FIRST_S: Final = 10.0
"""At a restart of all, how long workers without a spare wait for those with one, which readers
depend on and which would load more slowly beside them."""


@dataclass
class _Worker:
    name: str
    child: Child
    watchdog: Watchdog
    started: float = field(default_factory=time.monotonic)
    restarts: int = 0
    delay_s: float = _FIRST_DELAY_S
    again_at: float | None = None
    observe_at: float = 0.0
    spare: Child | None = None
    spare_at: float = 0.0
    """When to start a spare; 0: not before the worker is ready."""

    @property
    def processes(self) -> list[Child]:
        """Its process, and its spare if it has one."""
        return [self.child] if self.spare is None else [self.child, self.spare]


class Supervisor:
    """Runs `headstart worker NAME` for each name. Start it from the main thread."""

    def __init__(
        self,
        data: Path,
        environment: Mapping[str, str],
        names: Sequence[str] = (),
        of_worker: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`environment`: settings for the workers (HEADSTART_KAFKA etc.). `of_worker`: those of
        one worker by its name, which override them.

        `names`: default: all workers, the one of spans only if HEADSTART_SPANS_TOPIC names a topic,
        that of the memory unless HEADSTART_MEMORY is false.

        HEADSTART_HEALTH is the first worker's address; the others take the ports after it.
        """
        self._environment = {**os.environ, **environment}
        self._of_worker = dict(of_worker or {})
        self.names = names or _wanted(self._environment)
        data.mkdir(parents=True, exist_ok=True)
        self._data = data.resolve()
        self._instance = self._environment.get("HEADSTART_INSTANCE", "0")
        self._stuck_after_s = float(self._environment.get("HEADSTART_STUCK_AFTER_S", STUCK_AFTER_S))
        self._group = ProcessGroup(self._data)
        self._workers: list[_Worker] = []
        self._halted = False

    def start(self) -> None:
        """Start every worker; each waits for its services."""
        for name in self.names:
            child = self._spawn(name, self._label(name))
            self._workers.append(_Worker(name, child, self._watchdog()))

    def _watchdog(self) -> Watchdog:
        return Watchdog(self._stuck_after_s)

    def _label(self, name: str) -> str:
        return f"{name}-{self._instance}"  # other instances may use the same directory

    def _spawn(self, name: str, label: str, *more: str) -> Child:
        self._group.claim(label)
        environment = {**self._environment, **self._of_worker.get(name, {})}
        if health := environment.get("HEADSTART_HEALTH"):
            address = health_address(health, self.names.index(name))
            environment = {**environment, "HEADSTART_HEALTH": address}
        # -P: the current directory may contain a settings.py or cli.py of the user.
        command = [sys.executable, "-P", "-m", "cli", "worker", name, *more]
        child = self._group.spawn(label, command, _ENDING, env=environment)
        self._group.launched()
        return child

    def check(self) -> list[str]:
        """Restart workers that have exited, with exponential back-off; kill those that are stuck.

        Returns messages for the user. Call it at least every second.
        """
        messages: list[str] = []
        for worker in () if self._halted else self._workers:
            self._look(worker, time.monotonic(), messages)
        return messages

    def halt(self) -> None:
        """Kill every worker, and start none before `resume`, because the broker's log is lost.

        A running worker would take the next log for the old one. Killing loses no state.
        """
        self._halted = True
        ending = [each for worker in self._workers for each in worker.processes]
        for child in ending:
            child.send(signal.SIGKILL)
        for child in ending:
            child.process.wait()

    def resume(self) -> None:
        """Let `check` restart the workers that `halt` killed."""
        self._halted = False
        now = time.monotonic()
        for worker in self._workers:
            if worker.spare is not None:
                self._group.forget(worker.spare)
                worker.spare = None
            worker.again_at = now  # workers that readers depend on start first: see `_has_turn`

    def _look(self, worker: _Worker, now: float, messages: list[str]) -> None:
        if worker.again_at is not None:
            late_s = now - worker.again_at
            if late_s >= 0.0 and (late_s >= _FIRST_S or self._has_turn(worker)):
                self._replace(worker, self._spawn(worker.name, self._label(worker.name)), now)
        elif not worker.child.alive:
            self._ended(worker, now, messages)
        elif why := self._why_stuck(worker, now):
            messages.append(f"worker {worker.name} is stuck: {why}; ending it")
            worker.child.send(signal.SIGKILL)
            worker.watchdog = self._watchdog()  # reports it only once
        elif worker.name in SPARED:
            self._keep_spare(worker, now)

    def _why_stuck(self, worker: _Worker, now: float) -> str | None:
        if now < worker.observe_at:
            return None
        worker.observe_at = now + _OBSERVE_S
        return worker.watchdog.observe(now, self._report(worker), cpu_wait_s(worker.child.pid))

    def _has_turn(self, worker: _Worker) -> bool:
        """Return whether it may start: not while a worker that readers depend on is loading."""
        if worker.name in SPARED:
            return True
        return all(self._is_ready(each) for each in self._workers if each.name in SPARED)

    def _ended(self, worker: _Worker, now: float, messages: list[str]) -> None:
        if now - worker.started > _HEALTHY_AFTER_S:
            worker.delay_s = _FIRST_DELAY_S
        ended = worker.child
        note = " (too much is refused)" if ended.process.poll() == EXIT_CODE else ""
        what = f"starting it again in {worker.delay_s:.1f} s"
        if worker.spare is not None and worker.spare.alive:
            spare, worker.spare = worker.spare, None
            self._replace(worker, spare, now)
            what = f"its spare (pid {spare.pid}) takes over"
        else:
            worker.again_at = now + worker.delay_s
            worker.delay_s = min(worker.delay_s * 2, _LONGEST_DELAY_S)
        why = why_log_ends(ended.log, ended.log_start)
        reason = f": {why}" if why else ""
        messages.append(
            f"worker {worker.name} {ended.outcome}{note}{reason}; {what} (log: {ended.log})"
        )

    def _replace(self, worker: _Worker, child: Child, now: float) -> None:
        self._group.forget(worker.child)
        worker.child, worker.watchdog = child, self._watchdog()
        worker.started, worker.again_at, worker.spare_at = now, None, 0.0
        worker.restarts += 1

    def _keep_spare(self, worker: _Worker, now: float) -> None:
        """Start a spare some time after the worker is ready; replace one that exited."""
        if worker.spare is not None:
            if worker.spare.alive:
                return
            self._group.forget(worker.spare)
            worker.spare, worker.spare_at = None, now + _LONGEST_DELAY_S
        if worker.spare_at == 0.0:
            if self._is_ready(worker):
                worker.spare_at = now + _SPARE_AFTER_S
        elif now >= worker.spare_at:
            label = self._label(worker.name)
            if worker.child.name == label:  # a spare that took over keeps its own label
                label += "-spare"
            worker.spare = self._spawn(worker.name, label, "--spare")

    @property
    def ready(self) -> bool:
        """Whether every worker has reported that its partitions are open.

        Not the worker of spans: its topic is that of an OpenTelemetry Collector.
        """
        return all(self._is_ready(worker) for worker in self._workers if worker.name != SPANS)

    @property
    def unready(self) -> list[str]:
        """Messages about the workers that are not ready: `worker NAME waits for postgres: ...`."""
        waiting = [worker for worker in self._workers if not self._is_ready(worker)]
        return [f"worker {worker.name} {self._start_state(worker)}" for worker in waiting]

    def _start_state(self, worker: _Worker) -> str:
        if worker.again_at is not None or not worker.child.alive:
            return f"has ended ({worker.restarts} restarts) and starts again"
        report = self._report(worker)
        if report is None:
            return "is loading, or waits for its data directory"
        return report.waiting or "restores its partitions"

    @property
    def spared(self) -> bool:
        """Whether every worker in `SPARED` has a running spare."""
        wanted = [worker for worker in self._workers if worker.name in SPARED]
        return all(worker.spare is not None and worker.spare.alive for worker in wanted)

    def _is_ready(self, worker: _Worker) -> bool:
        if worker.again_at is not None or not worker.child.alive:
            return False  # its last report is outdated
        report = self._report(worker)
        return report is not None and report.ready

    def _report(self, worker: _Worker) -> Report | None:
        """Return the newest report of the worker's present process, None if there is none yet."""
        return read_report(self._data / f"{worker.name}-{self._instance}", worker.child.pid)

    @property
    def restarts(self) -> int:
        """Number of restarts of all workers."""
        return sum(worker.restarts for worker in self._workers)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by worker name."""
        return {worker.name: worker.child.pid for worker in self._workers}

    def stop(self) -> None:
        """Stop every worker; takes under 7 s unless the machine is busy."""
        self._group.close()
        self._workers.clear()


def _wanted(environment: Mapping[str, str]) -> tuple[str, ...]:
    left_out = set()
    if not environment.get("HEADSTART_SPANS_TOPIC"):
        left_out.add(SPANS)
    if environment.get("HEADSTART_MEMORY", "true").lower() in _FALSE:
        left_out.add(MEMORY)
    return tuple(name for name in ALL_WORKERS if name not in left_out)


def health_address(first: str, place: int) -> str:
    """Return the health address of worker number `place`, from 0; the first has `first`."""
    host, _, port = first.rpartition(":")
    return f"{host}:{int(port) + place}"
