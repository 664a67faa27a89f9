"""Executors and their shipper killed -9 in mid-burst, up to Postgres and the thresholds.

The short version of `python -m tests.chaos --kill-clients 50`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.system import System
from headstart.connections.own_security import use_security
from headstart.shipping.process import ship
from tests.chaos.checker import check
from tests.chaos.executor import Work, command
from tests.patience import PATIENCE_S, until
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

pytestmark = pytest.mark.integration

KILLS = 6
FEW = 2_000  # bytes of ids that an executor has printed since it began


class Fleet:
    """Executors of one tenant that share a directory of spools, each in a process of its own."""

    def __init__(self, kafka: str, tenant: str, home: Path) -> None:
        self.spool, self.journal = home / "spool", home / "journal"
        self.journal.mkdir()
        self._kafka, self._tenant = kafka, tenant
        self.running: list[tuple[Path, subprocess.Popen[bytes]]] = []
        self.started = 0

    def start(self) -> None:
        file = self.journal / str(self.started)
        work = Work(self._kafka, str(self.spool), self._tenant, str(file), 500.0, self.started)
        environment = {**os.environ, "HEADSTART_SHIPPER": "process"}
        self.started += 1
        self.running.append((file, subprocess.Popen(command(work), env=environment)))

    def kill_oldest(self) -> None:
        """Kill -9 the one that was started first, while it emits."""
        file, process = self.running.pop(0)
        until(lambda: file.exists() and file.stat().st_size > FEW)
        process.kill()
        process.wait()

    def shipper(self) -> int:
        file = self.spool / "ship.lock"
        return int(file.read_bytes()[4:].strip(b"\0 \n") or b"0") if file.exists() else 0

    def kill_shipper(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.shipper(), signal.SIGKILL)

    def stop(self) -> None:
        for _, process in self.running:
            process.terminate()
            process.wait(PATIENCE_S)
        self.running.clear()


@pytest.fixture
def fleet(system: System, tenant: str, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(system.addresses.kafka, tenant, tmp_path)
    yield made
    made.stop()
    if made.shipper() not in {0, os.getpid()}:
        made.kill_shipper()


def test_executors_and_the_shipper_killed_again_and_again(
    system: System, tenant: str, fleet: Fleet
) -> None:
    at = system.addresses
    use_security(None)  # that of the environment, as the executors have it
    begin = asyncio.run(topic_state(at.kafka, EVENTS.name)).end
    fleet.start()
    fleet.start()
    killed: set[int] = set()
    for _ in range(KILLS):
        fleet.kill_oldest()
        until(lambda: fleet.shipper() not in {0, *killed})
        killed.add(fleet.shipper())
        fleet.kill_shipper()
        fleet.start()
    fleet.stop()
    assert ship(fleet.spool, drain=True, timeout_s=PATIENCE_S).complete
    assert system.drain(PATIENCE_S)
    checked = check(at, tenant, fleet.journal, dict(begin))
    assert checked.ok, checked
    assert checked.emitted > 0
    assert len(killed) == KILLS
