"""Keeps worker processes running: one child each, started again when it ends.

What a worker does is its own affair (agents/worker.py); here are only its start and its end.
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
from processing.refusals import EXIT_CODE

WORKERS: Final = ("episodes", "thresholds", "history")

# A worker's state is safe at any line, so one whose owner is dead need not be asked.
_ENDING = Ending(ask=signal.SIGTERM, insist=signal.SIGTERM, orphaned=signal.SIGKILL)
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.5, 30.0
_HEALTHY_AFTER_S = 60.0


@dataclass
class _Worker:
    name: str
    child: Child
    started: float = field(default_factory=time.monotonic)
    restarts: int = 0
    delay_s: float = _FIRST_DELAY_S
    again_at: float | None = None


class Supervisor:
    """Runs `headstart worker NAME` for each name. Start it from the main thread."""

    def __init__(
        self, data: Path, environment: Mapping[str, str], names: Sequence[str] = WORKERS
    ) -> None:
        """`environment`: settings for the workers, HEADSTART_KAFKA and so on."""
        self._names = names
        self._environment = {**os.environ, **environment}
        data.mkdir(parents=True, exist_ok=True)
        self._data = data.resolve()
        self._instance = self._environment.get("HEADSTART_INSTANCE", "0")
        self._nursery = Nursery(self._data)
        self._workers: list[_Worker] = []

    def start(self) -> None:
        """Start every worker; they wait by themselves for their services."""
        for name in self._names:
            self._workers.append(_Worker(name, self._spawn(name)))

    def _spawn(self, name: str) -> Child:
        self._nursery.claim(name)
        child = self._nursery.spawn(
            name, [sys.executable, "-m", "cli", "worker", name], _ENDING, env=self._environment
        )
        self._nursery.launched()
        return child

    def check(self) -> list[str]:
        """Start again what has ended, with exponential back-off; return what there is to say."""
        said = []
        now = time.monotonic()
        for worker in self._workers:
            if worker.again_at is None and not worker.child.alive:
                if now - worker.started > _HEALTHY_AFTER_S:
                    worker.delay_s = _FIRST_DELAY_S
                worker.again_at = now + worker.delay_s
                why = " (too much is refused)" if worker.child.process.poll() == EXIT_CODE else ""
                said.append(
                    f"worker {worker.name} {worker.child.outcome}{why}; starting it again in "
                    f"{worker.delay_s:.1f} s (log: {worker.child.log})"
                )
                worker.delay_s = min(worker.delay_s * 2, _LONGEST_DELAY_S)
            elif worker.again_at is not None and now >= worker.again_at:
                self._nursery.let_go(worker.child)
                worker.child = self._spawn(worker.name)
                worker.started, worker.again_at = now, None
                worker.restarts += 1
        return said

    @property
    def ready(self) -> bool:
        """Whether every worker has said, in its directory, that its partitions are open."""
        return all(self._is_ready(worker) for worker in self._workers)

    def _is_ready(self, worker: _Worker) -> bool:
        try:
            said = (self._data / f"{worker.name}-{self._instance}" / "ready").read_text()
        except OSError:
            return False
        return said == str(worker.child.pid)

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
