"""Why a service did not answer, in a few words: what clients say is long, and each says it anew."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Final

from deploy.local.ready import one_line
from headstart.producing import BrokerUnreachable
from sinks.connections import PostgresUnreachable, RedisUnreachable

CLOSED: Final = "nothing listens there"
UNKNOWN_HOST: Final = "no such host"
SILENT: Final = "no answer in time"
WRONG_PASSWORD: Final = "the password or user is wrong"
PASSWORD_WANTED: Final = "it wants a password"

_SIGNS: Final = (
    (re.compile(r"password authentication failed|WRONGPASS|invalid username-password", re.I),
     WRONG_PASSWORD),
    (re.compile(r"NOAUTH|Authentication required|no password supplied", re.I), PASSWORD_WANTED),
    (re.compile(r"refused|Connect call failed", re.I), CLOSED),
    (re.compile(r"resolve|not known|getaddrinfo|Name or service|name resolution", re.I),
     UNKNOWN_HOST),
    (re.compile(r"time(d )?out", re.I), SILENT),
)  # fmt: skip
_UNREACHABLE: Final = (BrokerUnreachable, PostgresUnreachable, RedisUnreachable)


def cause(error: BaseException) -> str:
    """Return why, in a few words where they are known, else the error's own, without passwords."""
    if isinstance(error, TimeoutError):
        return SILENT
    found = error.__cause__ if isinstance(error, _UNREACHABLE) and error.__cause__ else error
    text = f"{type(found).__name__} {one_line(found)}"
    for sign, words in _SIGNS:
        if sign.search(text):
            return words
    return one_line(found)


async def unreachable_why(kafka: str, seconds: float = 3.0) -> str | None:
    """Return why no broker of `host:port[,host:port]` takes a connection; None: one does."""
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
            why = cause(error)
        else:
            writer.close()
            return None
    return why
