"""Clients of the nodes of a Redis Cluster that keep a time limit, for the readers.

redis-py's `RedisCluster` sleeps between its attempts, longer than a reader may wait. These clients
send every command to the master of its slot at once, follow a redirection, and return errors in
place of responses. Which master has which slot is asked before the first command, and again after
an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis

from headstart.connections.redis_addresses import cluster_address
from headstart.connections.redis_failures import NoServerAnswers
from headstart.connections.redis_slots import Address, Command, CommandExchange, SlotMap
from headstart.connections.redis_tls import read_files_again

ASKED: Final = 3
"""Most nodes asked in turn for the masters; after an error the others come first."""
_SLOTS: Final[Command] = ("CLUSTER SLOTS",)


class _Nodes:
    """Base of both kinds. `options`: redis-py's, of connections. `slots`: one to share."""

    _kind: Any

    def __init__(self, url: str, *, slots: SlotMap | None = None, **options: Any) -> None:
        at = cluster_address(url)
        self.slots = slots or SlotMap(at.nodes)
        self._options = {**options, **at.options}
        self._clients: dict[Address, Any] = {}

    def at(self, address: Address) -> Any:
        """Return the client of one node."""
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = self._new_client(*address)
        return client

    def _new_client(self, host: str, port: int) -> Any:
        return self._kind(host=host, port=port, **self._options)

    def _gone(self) -> list[Any]:
        """Return the clients of nodes that the cluster no longer has, and forget them."""
        gone = [each for each in self._clients if each not in self.slots.nodes]
        return [self._clients.pop(each) for each in gone]


def queue_commands(pipeline: Any, commands: Iterable[Command]) -> Any:
    """Add commands to a pipeline of redis-py, and return the pipeline."""
    for command in commands:
        pipeline.execute_command(*command)
    return pipeline


def _named(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


class Nodes(_Nodes):
    """Clients for one thread. Connect on the first command."""

    _kind = Redis

    def answers(self, commands: Sequence[Command]) -> list[Any]:
        """Return the response to each command, or the error in its place.

        Raises `NoServerAnswers` if no node names the masters.
        """
        if not self.slots.known:
            self.discover()
        exchange = CommandExchange(self.slots, commands)
        for requests in exchange.rounds():
            for each in requests:
                exchange.put(each, self._execute(each.address, each.commands))
        return exchange.answers

    def _execute(self, address: Address, commands: Sequence[Command]) -> list[Any]:
        try:
            client = self.at(address)
            if len(commands) == 1:  # a pipeline would cost a tenth more
                return [client.execute_command(*commands[0])]
            with client.pipeline(transaction=False) as pipeline:
                found: list[Any] = queue_commands(pipeline, commands).execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            return [error] * len(commands)
        return found

    def discover(self) -> None:
        """Ask for the masters. Raises `NoServerAnswers` if no node names them."""
        errors: dict[str, Exception] = {}
        for address in self.slots.nodes[:ASKED]:
            (response,) = self._execute(address, [_SLOTS])
            error = self.slots.take(response, address)
            if error is None:
                for client in self._gone():
                    client.close()
                return
            errors[_named(address)] = error
        raise NoServerAnswers(errors)

    def close(self) -> None:
        """Close the connections."""
        for client in list(self._clients.values()):  # another thread may add one
            client.close()


class AsyncNodes(_Nodes):
    """Clients for the tasks of one event loop. Connect on the first command."""

    _kind = AsyncRedis

    def __init__(self, url: str, *, answer_s: float | None = None, **more: Any) -> None:
        """`answer_s`: most seconds for one node that is asked for the masters; None: no limit."""
        super().__init__(url, **more)
        self._answer_s = answer_s

    def _new_client(self, host: str, port: int) -> Any:
        client = super()._new_client(host, port)
        read_files_again(client.connection_pool)
        return client

    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        """Return the response to each command, or the error in its place.

        All masters are asked at the same time. Raises `NoServerAnswers` if no node names the
        masters.
        """
        if not self.slots.known:
            await self.discover()
        exchange = CommandExchange(self.slots, commands)
        for requests in exchange.rounds():
            asking = (self._execute(each.address, each.commands) for each in requests)
            for each, responses in zip(requests, await asyncio.gather(*asking), strict=True):
                exchange.put(each, responses)
        return exchange.answers

    async def _execute(self, address: Address, commands: Sequence[Command]) -> list[Any]:
        try:
            async with self.at(address).pipeline(transaction=False) as pipeline:
                queue_commands(pipeline, commands)
                found: list[Any] = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            return [error] * len(commands)
        return found

    async def discover(self) -> None:
        """Ask for the masters. Raises `NoServerAnswers` if no node names them."""
        errors: dict[str, Exception] = {}
        for address in self.slots.nodes[:ASKED]:
            error = self.slots.take(await self._slots_of(address), address)
            if error is None:
                for client in self._gone():
                    await client.aclose()
                return
            errors[_named(address)] = error
        raise NoServerAnswers(errors)

    async def _slots_of(self, address: Address) -> Any:
        try:
            async with asyncio.timeout(self._answer_s):
                (response,) = await self._execute(address, [_SLOTS])
        except TimeoutError as error:
            return error
        return response

    async def aclose(self) -> None:
        """Close the connections, all at the same time: one may take long, or fail."""
        await asyncio.gather(*(client.aclose() for client in self._clients.values()))
