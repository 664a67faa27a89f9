"""A server that sends back what it receives, for the tests of the proxy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.proxy import HOST, Proxy


@contextmanager
def proxied_echo() -> Iterator[Proxy]:
    """Yield a proxy before a server that answers one connection with what it receives."""
    with socket.create_server((HOST, 0)) as server:
        thread = threading.Thread(target=_echo, args=(server,), daemon=True)
        thread.start()
        proxy = Proxy(server.getsockname()[1])
        yield proxy
        proxy.close()
        thread.join(5)


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        try:
            while data := connection.recv(100):
                connection.sendall(data)
        except OSError:
            return
