"""Ports for servers that tests start."""

from __future__ import annotations

import socket
from typing import Final

_reserved: Final = list[socket.socket]()
"""Bound and not listening, while the process lives: the kernel gives their ports to no other socket
that asks for a free one, and a server can still bind them, also again after it was killed."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that this process gets only once."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
    reserved.bind(("127.0.0.1", 0))
    _reserved.append(reserved)
    return int(reserved.getsockname()[1])
