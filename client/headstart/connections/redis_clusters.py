"""Makes redis-py's clients of a Redis Cluster from URLs (`headstart.connections.redis_urls`)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import ClusterNode, RedisCluster

from headstart.connections.redis_options import server_options
from headstart.connections.redis_urls import CLUSTER_URL, hosts_in

NODE_PORT: Final = 6379


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


_node: Any = ClusterNode  # without type hints in redis-py


def connect_cluster(url: str, **options: Any) -> RedisCluster:
    """Return a client; it asks for the masters at once, and raises redis-py's errors.

    Raises `ValueError` or `TypeError` if the URL cannot be used.
    """
    at = cluster_address(url)
    nodes = [_node(host, port) for host, port in at.nodes]
    return RedisCluster(startup_nodes=nodes, **{**options, **at.options})


def connect_cluster_async(url: str, **options: Any) -> AsyncRedisCluster:
    """Return an asyncio client, which connects on its first command; see `connect_cluster`."""
    at = cluster_address(url)
    nodes = [AsyncClusterNode(host, port) for host, port in at.nodes]
    return AsyncRedisCluster(startup_nodes=nodes, **{**options, **at.options})
