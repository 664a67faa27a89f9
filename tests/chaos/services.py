"""Broker, Postgres and Redis, each to be killed and started again on its own data and port."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from deploy.local.apache_kafka import Apache
from deploy.local.ports import Ports
from deploy.local.postgres import Postgres
from deploy.local.process_group import ProcessGroup
from deploy.local.redis import Redis
from deploy.local.service import Service

Make = Callable[[ProcessGroup, Ports, int], Service]


class KillableServer:
    """One server, in a directory of its own."""

    def __init__(self, make: Make, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._make, self._folder = make, folder
        self._group = ProcessGroup(folder)
        self.address = ""

    def start(self) -> str:
        """Start it, or start it again where it was; return its address once it answers."""
        ports = Ports(self._folder)
        try:
            part = self._make(self._group, ports, 0)
            part.prepare()
            part.launch()
            self._group.launched()
            self.address = part.ready()
        finally:
            ports.release()
        ports.remember()
        return self.address

    def kill(self) -> None:
        """End it without a warning, with all that it started."""
        for child in self._group.children:
            child.send(signal.SIGKILL)
            child.process.wait(10)
            self._group.forget(child)

    def close(self) -> None:
        self._group.close()


def services(folder: Path) -> dict[str, KillableServer]:
    """Return the three by name, not started."""
    makes: dict[str, Make] = {"kafka": Apache, "postgres": Postgres, "redis": Redis}
    return {name: KillableServer(make, folder / name) for name, make in makes.items()}
