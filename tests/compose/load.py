"""Executors on the host that emit to the published broker, and the checker afterwards."""

from __future__ import annotations

import asyncio
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

    def start(self, events_per_s: float) -> None:
        """Start all."""
        journal = self._folder / "journal"
        journal.mkdir()
        self._begin = asyncio.run(topic_state(self._at.kafka, EVENTS.name)).end
        for number in range(EXECUTORS):
            work = Work(
                self._at.kafka, str(self._folder / "spool"), TENANT, str(journal / str(number)),
                events_per_s / EXECUTORS, number,
            )  # fmt: skip
            with (self._folder / f"executor-{number}.log").open("ab") as log:
                self._executors.append(
                    subprocess.Popen(command(work), stdout=log, stderr=log, start_new_session=True)
                )

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
