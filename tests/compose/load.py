"""Executors on the host that emit to the published broker, and the checker afterwards."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.local import Addresses
from deploy.system import wait_drained
from tests.chaos.checker import Checked, check
from tests.chaos.executor import Work, command
from topics.catalogue import EVENTS
from topics.epoch import read_epoch
from topics.kafka.reader import topic_state

TENANT = "compose"
EXECUTORS = 3
DRAIN_S = 180.0


class Load:
    """Executors that emit at a steady rate until `stop`."""

    def __init__(self, addresses: Addresses, folder: Path) -> None:
        self._at, self._folder = addresses, folder
        self._executors: list[subprocess.Popen[bytes]] = []
        self._begin: Mapping[int, int] = {}
        self._events_per_s = 0.0

    def start(self, events_per_s: float, code: Mapping[str, str] | None = None) -> None:
        """Start all. `code`: the environment in which they run the client of another version."""
        (self._folder / "journal").mkdir()
        self._begin = asyncio.run(topic_state(self._at.kafka, EVENTS.name)).end
        self._events_per_s = events_per_s
        self._executors = [self._executor(number, number, code) for number in range(EXECUTORS)]

    def replace(self, number: int) -> None:
        """Kill an executor -9, and start one of this version in its place."""
        self._executors[number].kill()
        self._executors[number].wait()
        self._executors[number] = self._executor(number, EXECUTORS + number)

    def _executor(
        self, number: int, seed: int, code: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        journal = str(self._folder / "journal" / str(number))
        work = Work(
            self._at.kafka, str(self._folder / "spool"), TENANT, journal,
            self._events_per_s / EXECUTORS, seed,
        )  # fmt: skip
        with (self._folder / f"executor-{number}.log").open("ab") as log:
            return subprocess.Popen(
                command(work), stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **(code or {})},
            )  # fmt: skip

    def running(self) -> bool:
        """Return whether no executor has ended."""
        return all(each.poll() is None for each in self._executors)

    def stop(self) -> None:
        """Ask all to end, then ship what they spooled."""
        for each in self._executors:
            each.terminate()
        for each in self._executors:
            each.wait(60)
        ship = ["ship", "--spool", str(self._folder / "spool"), "--drain", "--timeout", "60"]
        with (self._folder / "ship.log").open("ab") as log:
            subprocess.run([sys.executable, "-m", "cli", *ship], stdout=log, stderr=log, check=True)

    def close(self) -> None:
        """End what still runs."""
        for each in self._executors:
            each.kill()
            each.wait()

    def check(self) -> Checked:
        """Wait until everything is processed, then compare log, Postgres and Redis."""
        epoch = asyncio.run(read_epoch(self._at.kafka))
        left = wait_drained(self._at, epoch.number, lambda: None, DRAIN_S)
        assert not left, f"{left} records are not processed after {DRAIN_S:.0f} s"
        return check(self._at, TENANT, self._folder / "journal", self._begin)
