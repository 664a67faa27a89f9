"""Ports on 127.0.0.1: chosen, reserved until the child listens, and stored for the next start."""

import contextlib
import json
import socket
import sys
from pathlib import Path

from deploy.local.errors import StackError, naming
from headstart.arguments.checks import HIGHEST_PORT

HOST = "127.0.0.1"


class Ports:
    """The ports of one data directory, stored in `ports.json` so that URLs stay valid."""

    def __init__(self, data: Path) -> None:
        self._path = data / "ports.json"
        self._chosen: dict[str, int] = {}
        self._reserved: list[socket.socket] = []
        self._last = self._read()

    def reserve(self, name: str, wanted: int = 0) -> int:
        """Reserve and return `wanted`, or if 0 the last port, else a free one."""
        if not 0 <= wanted <= HIGHEST_PORT:
            raise StackError(
                f"{wanted} is not a valid port for {name}: give one from 0 to {HIGHEST_PORT}"
            )
        if wanted and (other := self._of(wanted, name)):
            raise StackError(
                f"two services were given one port: {other} and {name} are both to listen at "
                f"{HOST}:{wanted}; give each its own, or 0 for a free one"
            )
        if wanted:
            reserved = _bound(wanted)
            if reserved is None:
                raise StackError(
                    f"{HOST}:{wanted} is taken, so {name} cannot listen there: end what uses it, "
                    "name another port, or 0 for a free one"
                )
        else:
            reserved = _bound(self._last.get(name, 0)) or _bound(0)
            if reserved is None:
                raise StackError(f"no port is free on {HOST} for {name}: end some programs")
        port: int = reserved.getsockname()[1]
        self._chosen[name] = port
        if sys.platform == "linux":
            # Several sockets may be bound to a port while none listens. So the child can bind it,
            # and until then the kernel assigns it neither as a free port nor to a connection.
            self._reserved.append(reserved)
        else:
            reserved.close()
        return port

    def _of(self, port: int, name: str) -> str | None:
        """Return the other service that has a port, of those reserved so far."""
        chosen = dict(self._chosen)  # other threads reserve meanwhile
        return next((each for each, of in chosen.items() if of == port and each != name), None)

    def release(self) -> None:
        """Close the reservations, once the children listen."""
        for reserved in self._reserved:
            reserved.close()
        self._reserved.clear()

    def remember(self) -> None:
        """Store the ports for the next start."""
        part = self._path.with_suffix(".json.part")
        with naming(part):
            part.write_text(json.dumps(self._last | self._chosen))
        part.replace(self._path)

    def _read(self) -> dict[str, int]:
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            found = json.loads(self._path.read_text())
            return {str(name): int(port) for name, port in found.items()}
        return {}


def _bound(port: int) -> socket.socket | None:
    candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As the servers do: ignore connections in TIME_WAIT.
    candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        candidate.bind((HOST, port))
    except PermissionError as error:
        candidate.close()
        raise StackError(f"{HOST}:{port} needs more rights: name a port above 1023") from error
    except (OSError, OverflowError):
        candidate.close()
        return None
    return candidate
