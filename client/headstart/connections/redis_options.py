"""The options of connections in Redis URLs that name several hosts."""

from __future__ import annotations

import re
from typing import Any

from redis.connection import parse_url

_parse: Any = parse_url  # without type hints in redis-py


def server_options(found: re.Match[str], database: str = "") -> dict[str, Any]:
    """Return user, password, TLS and the options after `?`, as redis-py's clients take them.

    `found`: a match of `SENTINEL_URL` or `CLUSTER_URL`. Raises `ValueError` for an option that
    redis-py cannot parse.
    """
    login = f"{found['login']}@" if found["login"] else ""
    query = f"?{found['query']}" if found["query"] else ""
    options: dict[str, Any] = _parse(f"{found['scheme']}://{login}server/{database}{query}")
    for unused in ("host", "connection_class"):
        options.pop(unused, None)
    options["ssl"] = found["scheme"] == "rediss"
    return options
