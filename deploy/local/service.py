"""The interface of a stack's services, and the external service."""

from collections.abc import Callable
from typing import Protocol

from deploy.local.child_process import Child
from deploy.local.readiness import unreachable


class Service(Protocol):
    """One service. The stack calls the three steps in this order, each for all services in turn."""

    def prepare(self) -> None:
        """Reserve ports and start slow preparations. Main thread."""

    def launch(self) -> None:
        """Finish the preparation and start the server. Main thread.

        Called again after the server died: then it starts on the same port and data.
        """

    @property
    def server(self) -> Child | None:
        """The server's process, None before `launch` and for an external service."""

    def ready(self) -> str:
        """Wait until it answers; return its address. Any thread."""


class ExternalService:
    """A service that runs elsewhere: only probed, never started or stopped."""

    def __init__(self, what: str, address: str, probe: Callable[[str], None]) -> None:
        self._what = what
        self._address = address
        self._probe = probe

    def prepare(self) -> None:
        """Nothing to do."""

    def launch(self) -> None:
        """Nothing to do."""

    @property
    def server(self) -> Child | None:
        """None: it has no child process."""
        return None

    def ready(self) -> str:
        """Probe once, because a configured service should be running."""
        try:
            self._probe(self._address)
        except Exception as error:  # each client has its own kinds, malformed URLs others
            raise unreachable(self._what, self._address, error) from error
        return self._address
