"""Keeps worker processes running: one child each, started again when it ends or is stuck.

What a worker does is its own affair (agents/worker.py); here are only its start and its end. When
a report means that it is stuck is decided in processing/liveness.py.
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

from deploy.local.nursery import Nursery
from deploy.local.process import Child, Ending
from processing.liveness import REPORT_FILE, Report, Watchdog, decode_report
from processing.refusals import EXIT_CODE

WORKERS: Final = ("episodes", "thresholds", "history")

# A worker's state is safe at any line, so one whose owner is dead need not be asked.
_ENDING = Ending(ask=signal.SIGTERM, insist=signal.SIGTERM, orphaned=signal.SIGKILL)
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.5, 30.0
_HEALTHY_AFTER_S = 60.0
STUCK_AFTER_S: Final = 30.0
"""Without a report, or without progress while there is work, for so long: ended."""


@dataclass
class _Worker:
    name: str
    child: Child
    watchdog: Watchdog
    started: float = field(default_factory=time.monotonic)
    restarts: int = 0
    delay_s: float = _FIRST_DELAY_S
    again_at: float | None = None


class Supervisor:
    """Runs `headstart worker NAME` for each name. Start it from the main thread."""

    def __init__(
        self, data: Path, environment: Mapping[str, str], names: Sequence[str] = WORKERS
    ) -> None:
        """`environment`: settings for the workers, HEADSTART_KAFKA and so on.

        HEADSTART_HEALTH is the first worker's address; the others take the ports after it.
        """
        self._names = names
        self._environment = {**os.environ, **environment}
        data.mkdir(parents=True, exist_ok=True)
        self._data = data.resolve()
        self._instance = self._environment.get("HEADSTART_INSTANCE", "0")
        self._stuck_after_s = float(self._environment.get("HEADSTART_STUCK_AFTER_S", STUCK_AFTER_S))
        self._nursery = Nursery(self._data)
        self._workers: list[_Worker] = []

    def start(self) -> None:
        """Start every worker; they wait by themselves for their services."""
        for name in self._names:
            self._workers.append(_Worker(name, self._spawn(name), self._watchdog()))

    def _watchdog(self) -> Watchdog:
        return Watchdog(self._stuck_after_s)

    def _spawn(self, name: str) -> Child:
        label = f"{name}-{self._instance}"  # others may run beside it on the same directory
        self._nursery.claim(label)
        environment = self._environment
        if health := environment.get("HEADSTART_HEALTH"):
            address = health_address(health, self._names.index(name))
            environment = {**environment, "HEADSTART_HEALTH": address}
        child = self._nursery.spawn(
            label, [sys.executable, "-m", "cli", "worker", name], _ENDING, env=environment
        )
        self._nursery.launched()
        return child

    def check(self) -> list[str]:
        """Start again what has ended, with exponential back-off; end what is stuck.

        Returns what there is to say. Call it every second or oftener.
        """
        said = []
        now = time.monotonic()
        for worker in self._workers:
            if worker.again_at is None and not worker.child.alive:
                if now - worker.started > _HEALTHY_AFTER_S:
                    worker.delay_s = _FIRST_DELAY_S
                worker.again_at = now + worker.delay_s
                refused = worker.child.process.poll() == EXIT_CODE
                note = " (too much is refused)" if refused else ""
                said.append(
                    f"worker {worker.name} {worker.child.outcome}{note}; starting it again in "
                    f"{worker.delay_s:.1f} s (log: {worker.child.log})"
                )
                worker.delay_s = min(worker.delay_s * 2, _LONGEST_DELAY_S)
            elif worker.again_at is not None and now >= worker.again_at:
                self._nursery.let_go(worker.child)
                worker.child, worker.watchdog = self._spawn(worker.name), self._watchdog()
                worker.started, worker.again_at = now, None
                worker.restarts += 1
            elif worker.again_at is None and (
                why := worker.watchdog.observe(now, self._report(worker))
            ):
                said.append(f"worker {worker.name} is stuck: {why}; ending it")
                worker.child.send(signal.SIGKILL)
                worker.watchdog = self._watchdog()  # it is said once
        return said

    @property
    def ready(self) -> bool:
        """Whether every worker has reported that its partitions are open."""
        reports = [self._report(worker) for worker in self._workers]
        return all(report is not None and report.ready for report in reports)

    def _report(self, worker: _Worker) -> Report | None:
        """Return the newest report of this very process, None if there is none yet."""
        try:
            raw = (self._data / f"{worker.name}-{self._instance}" / REPORT_FILE).read_bytes()
        except OSError:
            return None
        report = decode_report(raw)
        return report if report is not None and report.pid == worker.child.pid else None

    @property
    def restarts(self) -> int:
        """How often a worker had to be started again."""
        return sum(worker.restarts for worker in self._workers)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by worker name."""
        return {worker.name: worker.child.pid for worker in self._workers}

    def stop(self) -> None:
        """Ask every worker to end, then kill: under 8 s."""
        self._nursery.close()
        self._workers.clear()


def health_address(first: str, place: int) -> str:
    """Return the address of the worker at `place`, counted from 0; the first has `first`."""
    host, _, port = first.rpartition(":")
    return f"{host}:{int(port) + place}"
