"""The parts of Redis URLs that name several hosts, and the options of their connections."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from redis.connection import parse_url

from headstart.connections.redis_urls import CLUSTER_URL, hosts_in

NODE_PORT: Final = 6379
_parse: Any = parse_url  # without type hints in redis-py


class ClusterAddress(NamedTuple):
    """The parts of a cluster's URL. `options`: of connections to nodes, as redis-py takes them."""

    nodes: list[tuple[str, int]]
    options: dict[str, Any]


def cluster_address(url: str) -> ClusterAddress:
    """Return the parts of a cluster's URL. Raises `ValueError`, without repeating the URL."""
    found = CLUSTER_URL.fullmatch(url)
    nodes = hosts_in(found["hosts"], NODE_PORT) if found else None
    if found is None or nodes is None:
        raise ValueError("not redis+cluster://HOST:PORT,HOST:PORT")
    return ClusterAddress(nodes, server_options(found))


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
