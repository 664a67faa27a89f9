"""Validates the options that select a service: `embedded`, or the address of a running one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headstart.arguments.checks import HIGHEST_PORT
from headstart.connections.redis_urls import SCHEMES

_SCHEMES: Final = ("postgresql://", "postgres://")
EMBEDDED: Final = "embedded"
CONFIGURED: Final = "configured"
"""The address of the settings; `cli.system.chosen_services` puts it in place of this word."""
_HERE: Final = (EMBEDDED, "apache")
ACCEPTED: Final = {
    "kafka": (
        "embedded, apache, configured (HEADSTART_KAFKA), or brokers as host:port[,host:port], "
        f"ports from 1 to {HIGHEST_PORT}"
    ),
    "postgres": (
        "embedded, configured (HEADSTART_POSTGRES), or a DSN: "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, several hosts as HOST:PORT,HOST:PORT, or "
        "host=HOST dbname=DATABASE"
    ),
    "redis": (
        "embedded, configured (HEADSTART_REDIS), or a URL: "
        "redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://, unix://, "
        "redis+sentinel://SENTINEL:PORT,SENTINEL:PORT/NAME/NUMBER, or "
        "redis+cluster://HOST:PORT,HOST:PORT"
    ),
}
"""By option of `headstart up`."""


def why_not(part: str, value: str) -> str | None:
    """Return what `part` (a key of `ACCEPTED`) accepts if `value` is invalid, else None.

    Never quotes the value: a mistyped address may contain a password.
    """
    known = {"kafka": _is_kafka, "postgres": _is_dsn, "redis": _is_url}[part](value)
    return None if known or value == EMBEDDED else f"accepted are {ACCEPTED[part]}"


def same_port(parts: Mapping[str, str], ports: Mapping[str, int]) -> str | None:
    """Return an error message if two embedded services were given the same port, else None.

    `parts` and `ports`: by option. 0 is any free port; ports of external services are ignored.
    """
    taken: dict[int, str] = {}
    for part, port in ports.items():
        if port == 0 or parts[part] not in _HERE:
            continue
        if port in taken:
            return (
                f"two services were given one port: --{taken[port]}-port and --{part}-port are "
                f"both {port}; give each its own, or 0 for a free one"
            )
        taken[port] = part
    return None


def _is_kafka(value: str) -> bool:
    return value == "apache" or all(_is_broker(each.strip()) for each in value.split(","))


def _is_broker(value: str) -> bool:
    host, _, port = value.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and 1 <= int(port) <= HIGHEST_PORT


def _is_dsn(value: str) -> bool:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return bool(conninfo_to_dict(value)) or value.startswith(_SCHEMES)
    except (psycopg.Error, UnicodeError):
        return value.startswith(_SCHEMES)  # connecting reports what else is wrong


def _is_url(value: str) -> bool:
    return value.lower().startswith(SCHEMES)
