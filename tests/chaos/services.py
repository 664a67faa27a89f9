"""Broker, Postgres and Redis, each to be killed and started again on its own data and port."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from deploy.local.apache_kafka import Apache
from deploy.local.child_process import Child
from deploy.local.ports import Ports
from deploy.local.postgres import Postgres
from deploy.local.process_group import ProcessGroup
from deploy.local.redis import Redis
from deploy.local.service import Service

Make = Callable[[ProcessGroup, Ports, int], Service]


class Startable(Protocol):
    """A server, or several that are one service."""

    def start(self) -> str:
        """Start it; return its address once it answers."""

    def close(self) -> None:
        """End it."""


class KillableServer:
    """One server, in a directory of its own."""

    def __init__(self, make: Make, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._make, self._folder = make, folder
        self._group = ProcessGroup(folder)
        self._part: Service | None = None
        self._ports = Ports(folder)
        self.address = ""

    def start(self) -> str:
        """Start it, or start it again where it was; return its address once it answers."""
        self.launch()
        return self.wait()

    def launch(self) -> None:
        """Start it, or start it again where it was; it does not answer yet."""
        self._ports = Ports(self._folder)
        self._part = self._make(self._group, self._ports, 0)
        try:
            self._part.prepare()
            self._part.launch()
        except BaseException:
            self._ports.release()
            raise
        self._group.launched()

    def wait(self) -> str:
        """Return its address once it answers."""
        assert self._part is not None
        try:
            self.address = self._part.ready()
        finally:
            self._ports.release()
        self._ports.remember()
        return self.address

    @property
    def server(self) -> Child | None:
        """Its process; None: it was killed."""
        return next(iter(self._group.children), None)

    def kill(self) -> None:
        """End it without a warning, with all that it started."""
        for child in self._group.children:
            child.send(signal.SIGKILL)
            child.process.wait(10.0)
            self._group.forget(child)

    def terminate(self, seconds: float) -> None:
        """Ask it to end, and wait; kill it if it has not ended after so many seconds."""
        for child in self._group.children:
            child.send(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(seconds)
        self.kill()

    def close(self) -> None:
        self._group.close()


def services(folder: Path) -> dict[str, KillableServer]:
    """Return the three by name, not started."""
    makes: dict[str, Make] = {"kafka": Apache, "postgres": Postgres, "redis": Redis}
    return {name: KillableServer(make, folder / name) for name, make in makes.items()}
