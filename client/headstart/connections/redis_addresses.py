"""The address of a Redis Cluster: its nodes, and the options of connections to them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headstart.connections.redis_logins import with_file_login
from headstart.connections.redis_options import server_options
from headstart.connections.redis_urls import CLUSTER_URL, hosts_in

NODE_PORT: Final = 6379


class ClusterAddress(NamedTuple):
    """The parts of a cluster's URL. `options`: of connections to nodes, as redis-py takes them."""

    nodes: list[tuple[str, int]]
    options: dict[str, Any]


def cluster_address(url: str) -> ClusterAddress:
    """Return the parts of a cluster's URL. Raises `ValueError`, without repeating the URL."""
    address, login = with_file_login(url)
    found = CLUSTER_URL.fullmatch(address)
    nodes = hosts_in(found["hosts"], NODE_PORT) if found else None
    if found is None or nodes is None:
        raise ValueError("not redis+cluster://HOST:PORT,HOST:PORT")
    return ClusterAddress(nodes, {**server_options(found), **login})
