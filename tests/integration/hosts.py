"""Workers of several hosts on one log; each host has its own data directory and supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from deploy.local import Addresses
from deploy.supervisor import Supervisor
from deploy.system import total_lag
from headstart import Emitter
from tests.patience import PATIENCE_S, until
from tests.processes import run_command
from tests.secured import logins
from topics.epoch import Epoch


class Site:
    """One log, and the workers of several hosts on it, each with a data directory of its own."""

    def __init__(self, addresses: Addresses, epoch: Epoch, folder: Path) -> None:
        self.addresses, self.epoch, self.folder = addresses, epoch, folder
        self.messages: list[str] = []
        """What the supervisors said."""
        self.of_host: dict[str, dict[str, str]] = {}
        """Further settings by host."""
        self._supervisors: list[Supervisor] = []

    def settings(self, host: str) -> dict[str, str]:
        """The environment of a host's processes."""
        at = self.addresses
        return {
            "HEADSTART_KAFKA": at.kafka, "HEADSTART_POSTGRES": at.postgres,
            "HEADSTART_REDIS": at.redis, "HEADSTART_DATA": str(self.folder / host),
            **self.of_host.get(host, {}),
        }  # fmt: skip

    def start(self, host: str, *workers: str) -> Supervisor:
        """Start workers on a host."""
        data, settings = self.folder / host / "workers", self.settings(host)
        supervisor = Supervisor(data, settings, workers, logins(self.addresses))
        self._supervisors.append(supervisor)
        supervisor.start()
        return supervisor

    def end(self, supervisor: Supervisor) -> None:
        """End the workers of a host."""
        self._supervisors.remove(supervisor)
        supervisor.stop()

    def emit(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Send events; return once the broker has them."""
        with Emitter(self.addresses.kafka) as emitter:
            for event in events:
                emitter.emit(event)
            emitter.flush(PATIENCE_S)

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until a condition holds, while workers that end are started again."""
        until(condition, meanwhile=self.check, seen=lambda: self.messages)

    def check(self) -> None:
        """Start workers again that ended."""
        for supervisor in self._supervisors:
            self.messages += supervisor.check()

    def run(self, *command: str, host: str) -> Any:
        """Run a command on one host to its end; a worker with its own login."""
        login = logins(self.addresses).get(command[1], {}) if command[0] == "worker" else {}
        settings = {**self.settings(host), **login}
        return run_command(*command, folder=self.folder, environment=settings)

    def log(self, host: str, name: str) -> str:
        """Return the log of a worker of a host."""
        return (self.folder / host / f"workers/logs/{name}.log").read_text()

    def lag(self) -> int:
        """Return how many records the groups have not processed."""
        return asyncio.run(total_lag(self.addresses, self.epoch.number))

    def stop(self) -> None:
        """End all workers."""
        for supervisor in [*self._supervisors]:
            self.end(supervisor)
