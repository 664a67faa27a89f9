"""Makes redis-py's clients of a Redis Cluster from URLs (`headstart.connections.redis_urls`).

If no node names the masters, redis-py raises the error of one of them, which may just be away.
These clients ask each again then, and raise `NoServerAnswers` with what all of them answered.
"""

from __future__ import annotations

from typing import Any

from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException

from headstart.connections.redis_addresses import cluster_address
from headstart.connections.redis_nodes import AsyncNodes, Nodes
from headstart.connections.redis_tls import reading_files_again

_node: Any = ClusterNode  # without type hints in redis-py


def connect_cluster(url: str, **options: Any) -> RedisCluster:
    """Return a client; it asks for the masters at once, and raises redis-py's errors.

    Raises `ValueError` or `TypeError` if the URL cannot be used.
    """
    at = cluster_address(url)
    nodes = [_node(host, port) for host, port in at.nodes]
    try:
        return RedisCluster(startup_nodes=nodes, **{**options, **at.options})
    except RedisClusterException:
        asked = Nodes(url, **options)
        try:
            asked.discover()
        finally:
            asked.close()
        raise


class _NamingCluster(AsyncRedisCluster):
    """A client that knows its URL. `options`: the caller's, of connections."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        at = cluster_address(url)
        self._asked = (url, options)
        nodes = [AsyncClusterNode(host, port) for host, port in at.nodes]
        super().__init__(startup_nodes=nodes, **{**options, **at.options})
        kind = reading_files_again(self.connection_kwargs["connection_class"])
        self.connection_kwargs["connection_class"] = kind  # of nodes that are found later
        for node in self.nodes_manager.startup_nodes.values():
            node.connection_class = kind

    async def initialize(self, *args: Any, **more: Any) -> AsyncRedisCluster:
        """Ask for the masters if they are not known, as redis-py does."""
        try:
            return await super().initialize(*args, **more)
        except RedisClusterException:
            url, options = self._asked
            asked = AsyncNodes(url, **options)
            try:
                await asked.discover()
            finally:
                await asked.aclose()
            raise


def connect_cluster_async(url: str, **options: Any) -> AsyncRedisCluster:
    """Return an asyncio client, which connects on its first command; see `connect_cluster`."""
    return _NamingCluster(url, options)
