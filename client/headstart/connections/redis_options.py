"""The options of connections in Redis URLs."""

from __future__ import annotations

import re
from typing import Any

from redis.connection import parse_url

from headstart.connections.redis_urls import CLUSTER_URL, SENTINEL_URL

_parse: Any = parse_url  # without type hints in redis-py


def url_options(url: str) -> dict[str, Any]:
    """Return the options of a URL of any form. Raises `ValueError` if it cannot be parsed."""
    found = SENTINEL_URL.fullmatch(url) or CLUSTER_URL.fullmatch(url)
    options: dict[str, Any] = _parse(url) if found is None else server_options(found)
    return options


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
