"""What a subscriber listens to: one server, or every master of a cluster.

A node of a cluster passes an announcement on to the others at some time, or never. So a hash is
followed at the master that has its slot, where announcements are made, and only for as long as that
master has all slots that it had when the connections were opened: `check` raises when one has
moved, is being moved, or when the cluster does not serve.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import ClusterDownError, ClusterError

from headstart.connections.redis_clients import connect_async
from headstart.connections.redis_nodes import AsyncNodes, queue_commands
from headstart.connections.redis_slots import NODE_ERRORS, Address, Command
from headstart.connections.redis_urls import is_cluster_url


class Feed(Protocol):
    """Connections on which changes are announced."""

    async def open(self) -> list[Any]:
        """Return one connection per server, connected. Raises redis-py's errors."""
        ...

    def place(self, key: str, /) -> int | None:
        """Return the index of the connection that announces a hash; None if there is none."""
        ...

    async def check(self) -> None:
        """Raise redis-py's error if hashes may be announced on another connection by now."""
        ...

    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        """Return the responses to commands, or errors that concern one key only."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def new_feed(url: str, answer_s: float) -> Feed:
    """Return the feed of a URL, with no time limit but `answer_s`.

    That is the most seconds for one Sentinel, or one node that is asked for the masters: then the
    next one is asked.
    """
    # With its own timeout redis-py uses `asyncio.wait_for`, which swallows cancellations in
    # Python 3.11; the caller bounds every wait by `asyncio.timeout`.
    options: dict[str, Any] = {
        "protocol": 2, "socket_timeout": None, "socket_connect_timeout": None,
        "retry": Retry(NoBackoff(), 0),
    }  # fmt: skip
    if is_cluster_url(url):
        return ClusterFeed(AsyncNodes(url, answer_s=answer_s, **options))
    return ServerFeed(connect_async(url, answer_s=answer_s, **options))


class ServerFeed:
    """One server. `client`: redis-py's, also for queries."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._connection = client.connection_pool.make_connection()

    async def open(self) -> list[Any]:
        """Return the connection, connected."""
        await self._connection.connect()
        return [self._connection]

    def place(self, _key: str, /) -> int | None:
        """Return 0: there is one connection."""
        return 0

    async def check(self) -> None:
        """Do nothing: there is one server."""

    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        """Return the responses to commands, or errors in their places."""
        async with self._client.pipeline(transaction=False) as pipeline:
            queue_commands(pipeline, commands)
            found: list[Any] = await pipeline.execute(raise_on_error=False)
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.disconnect(nowait=True)
        await self._client.aclose()


class NodeState(NamedTuple):
    """What a master has. `epoch`: of its slots; it grows when it takes one over."""

    node: str
    epoch: str
    slots: tuple[tuple[int, int], ...]


class ClusterFeed:
    """Every master of a cluster. `nodes`: for queries."""

    def __init__(self, nodes: AsyncNodes) -> None:
        self._nodes = nodes
        self._masters: list[Address] = []
        self._states: list[NodeState] = []
        self._places: list[int | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._connections: list[Any] = []

    async def open(self) -> list[Any]:
        """Return a connection to each master, connected."""
        await self._nodes.discover()
        self._masters = sorted(self._nodes.slots.masters)
        self._states = await self._look()
        for place, state in enumerate(self._states):
            for first, last in state.slots:
                if any(each is not None for each in self._places[first : last + 1]):
                    raise ClusterError("two masters have the same slots")
                self._places[first : last + 1] = [place] * (last + 1 - first)
        for address in self._masters:
            connection = self._nodes.at(address).connection_pool.make_connection()
            self._connections.append(connection)
            await connection.connect()
        return self._connections

    def place(self, key: str, /) -> int | None:
        """Return the index of the connection to the master of a key."""
        return self._places[key_slot(key.encode())]

    async def check(self) -> None:
        """Raise `ClusterError` unless every master has the slots that it had at first."""
        if await self._look() != self._states:
            raise ClusterError("slots have moved")

    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        """Return the responses to commands; raise if a node does not respond."""
        found = await self._nodes.answers(commands)
        for each in found:
            if isinstance(each, NODE_ERRORS):
                raise each
        return found

    async def close(self) -> None:
        """Close the connections."""
        for each in self._connections:
            with contextlib.suppress(redis.RedisError, OSError):
                await each.disconnect(nowait=True)
        await self._nodes.aclose()

    async def _look(self) -> list[NodeState]:
        """Return what each master has by its own account."""
        looks = (self._state(each) for each in self._masters)
        found = await asyncio.gather(*looks, return_exceptions=True)  # else others go on alone
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [each for each in found if isinstance(each, NodeState)]

    async def _state(self, address: Address) -> NodeState:
        async with self._nodes.at(address).pipeline(transaction=False) as pipeline:
            pipeline.execute_command("CLUSTER INFO").execute_command("CLUSTER NODES")
            info, nodes = await pipeline.execute()
        return node_state(info, nodes)


def node_state(info: dict[str, Any], nodes: dict[str, dict[str, Any]]) -> NodeState:
    """Return what the node that gave these responses has; parsed as redis-py does.

    Raises `ClusterDownError` if it does not serve as a master, or a slot of it is being moved.
    """
    own = next(each for each in nodes.values() if "myself" in each["flags"])
    if info.get("cluster_state") != "ok":
        raise ClusterDownError("a master does not serve")
    if "master" not in own["flags"]:
        raise ClusterDownError("a master has become a replica")
    if own["migrations"]:
        raise ClusterDownError("slots are being moved")
    slots = tuple((int(each[0]), int(each[-1])) for each in own["slots"])
    return NodeState(own["node_id"], own["epoch"], slots)
