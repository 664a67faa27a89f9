"""A server that sends back what it receives, for the tests of the proxy."""

from __future__ import annotations

import socket


def echo(server: socket.socket) -> None:
    """Accept one connection and send back what it receives, until it ends."""
    connection, _ = server.accept()
    with connection:
        try:
            while data := connection.recv(100):
                connection.sendall(data)
        except OSError:
            return
