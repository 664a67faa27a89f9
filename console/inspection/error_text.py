"""Shortens the errors of service clients, which are long and differ between clients."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Final

from deploy.local.readiness import one_line
from headstart.kafka_producer import BrokerUnreachable
from sinks.connections import DatabaseUnreachable

CLOSED: Final = "nothing listens there"
UNKNOWN_HOST: Final = "no such host"
SILENT: Final = "no answer in time"

_SIGNS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        (r"refused|connect call failed", CLOSED),
        (r"resolve|not known|getaddrinfo|name or service|name resolution", UNKNOWN_HOST),
        (r"timed? ?out", SILENT),
    )
)
_UNREACHABLE: Final = (BrokerUnreachable, DatabaseUnreachable)


def short_error(error: BaseException) -> str:
    """Return a short text for a known error, else the error's first line; without passwords."""
    if isinstance(error, TimeoutError):
        return SILENT
    if isinstance(error, _UNREACHABLE) and error.trouble is not None:
        return error.trouble.what
    found = error.__cause__ if isinstance(error, _UNREACHABLE) and error.__cause__ else error
    text = f"{type(found).__name__} {one_line(found)}"
    for sign, words in _SIGNS:
        if sign.search(text):
            return words
    return one_line(found)


async def unreachable_why(kafka: str, seconds: float = 3.0) -> str | None:
    """Return why no broker of `host:port[,host:port]` accepts a connection, or None."""
    why = "it is not of the form host:port"
    for server in kafka.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal():
            continue
        try:
            async with asyncio.timeout(seconds):
                _reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except socket.gaierror:
            why = UNKNOWN_HOST
        except (OSError, OverflowError) as error:
            why = short_error(error)
        else:
            writer.close()
            return None
    return why
