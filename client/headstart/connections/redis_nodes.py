"""Clients of the nodes of a Redis Cluster that keep a time limit, for the readers.

redis-py's `RedisCluster` sleeps between its attempts, longer than a reader may wait. These clients
send every command to the master of its slot at once, follow a redirection, and return errors in
place of responses. Which master has which slot is asked before the first command, and again after
an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from redis import ConnectionError, Redis, RedisError, TimeoutError
from redis.asyncio import Redis as AsyncRedis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, ClusterError, MovedError

from headstart.connections.redis_addresses import cluster_address
from headstart.connections.redis_failures import NoServerAnswers
from headstart.connections.redis_tls import read_files_again

Address = tuple[str, int]
"""Host and port of a node."""
Command = tuple[str, ...]
"""The words of a command; the second is its key."""
REDIRECTIONS: Final = 2
"""Most redirections followed: to where a slot is now, and to where its keys are moved to."""
ASKED: Final = 3
"""Most nodes asked in turn for the masters; after an error the others come first."""


class _Redirection(NamedTuple):
    """Where the responses to some commands send them. `asking`: for this time only."""

    address: Address
    asking: bool


class SlotMap:
    """Which master has which slot. `nodes`: known addresses, those that failed last at the end.

    Threads may share it: each change replaces a list.
    """

    def __init__(self, nodes: Iterable[Address]) -> None:
        self._given = list(nodes)
        self.nodes = list(self._given)
        self.known = False
        self._masters: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS

    def learn(self, slots: Iterable[Any], asked: Address) -> None:
        """Replace all by a node's response to CLUSTER SLOTS."""
        masters: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        others: list[Address] = []
        for first, last, *servers in slots:
            master, *replicas = [_address(each, asked) for each in servers]
            masters[first : last + 1] = [master] * (last + 1 - first)
            others += [master, *replicas]
        self._masters = masters
        self.nodes = list(dict.fromkeys((asked, *others, *self._given)))
        self.known = bool(others)

    def master(self, key: str) -> Address | None:
        """Return the master of a key's slot; None if there is none."""
        return self._masters[key_slot(key.encode())]

    @property
    def masters(self) -> set[Address]:
        """The masters that have slots."""
        return {each for each in self._masters if each is not None}

    def failed(self, address: Address) -> None:
        """Note that a node does not respond: the masters are to be asked again, of others."""
        self.known = False
        if address in self.nodes:
            self.nodes = [*(each for each in self.nodes if each != address), address]

    def by_master(self, commands: Sequence[Command]) -> dict[Address | None, list[int]]:
        """Return the places of commands, by the master of their keys."""
        found: dict[Address | None, list[int]] = {}
        for place, command in enumerate(commands):
            found.setdefault(self.master(command[1]), []).append(place)
        return found

    def redirections(
        self, answers: Sequence[Any], asked: Sequence[Address]
    ) -> dict[_Redirection, list[int]]:
        """Return the places of commands to send to other nodes; note slots that have moved."""
        found: dict[_Redirection, list[int]] = {}
        for place, answer in enumerate(answers):
            if isinstance(answer, AskError):
                address = _address((answer.host, answer.port), asked[place])
                if moved := isinstance(answer, MovedError):
                    self._masters[answer.slot_id] = address
                found.setdefault(_Redirection(address, not moved), []).append(place)
        return found

    def note(self, answers: Sequence[Any], asked: Sequence[Address]) -> None:
        """Note the nodes that did not respond, or cannot serve."""
        for address, answer in zip(asked, answers, strict=True):
            if isinstance(answer, (ConnectionError, TimeoutError, ClusterError, OSError)):
                self.failed(address)


def _address(named: Sequence[Any], asked: Address) -> Address:
    """Return the address that a node named; a node that knows no host of its own means itself."""
    host = named[0].decode() if isinstance(named[0], bytes) else named[0]
    return (asked[0] if host in (None, "", "?") else str(host)), int(named[1])


def _named(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


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


def _queue(pipeline: Any, commands: Sequence[Command], asking: bool) -> None:
    for command in commands:
        if asking:
            pipeline.execute_command("ASKING")
        pipeline.execute_command(*command)


def _uncovered(count: int) -> list[Any]:
    return [ClusterDownError("no master has the slot")] * count


_NOWHERE: Final = ("", 0)


class Nodes(_Nodes):
    """Clients for one thread. Connect on the first command."""

    _kind = Redis

    def answers(self, commands: Sequence[Command]) -> list[Any]:
        """Return the response to each command, or the error in its place.

        Raises `NoServerAnswers` if no node names the masters.
        """
        if not self.slots.known:
            self.discover()
        answers: list[Any] = [None] * len(commands)
        asked = [_NOWHERE] * len(commands)

        def ask(address: Address | None, places: Sequence[int], asking: bool = False) -> None:
            some = [commands[place] for place in places]
            found = self._execute(address, some, asking) if address else _uncovered(len(some))
            for place, answer in zip(places, found, strict=True):
                answers[place], asked[place] = answer, address or _NOWHERE

        for address, places in self.slots.by_master(commands).items():
            ask(address, places)
        for _ in range(REDIRECTIONS):
            for to, places in self.slots.redirections(answers, asked).items():
                ask(to.address, places, to.asking)
        self.slots.note(answers, asked)
        return answers

    def _execute(self, address: Address, commands: Sequence[Command], asking: bool = False) -> Any:
        try:
            client = self.at(address)
            if len(commands) == 1 and not asking:  # a pipeline would cost a tenth more
                return [client.execute_command(*commands[0])]
            with client.pipeline(transaction=False) as pipeline:
                _queue(pipeline, commands, asking)
                answers = pipeline.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            return [error] * len(commands)
        return answers[1::2] if asking else answers

    def discover(self) -> None:
        """Ask for the masters. Raises `NoServerAnswers` if no node names them."""
        errors: dict[str, Exception] = {}
        for address in self.slots.nodes[:ASKED]:
            try:
                self.slots.learn(self.at(address).execute_command("CLUSTER SLOTS"), address)
            except (RedisError, OSError) as error:
                errors[_named(address)] = error
                self.slots.failed(address)
            if self.slots.known:
                for client in self._gone():
                    client.close()
                return
            errors.setdefault(_named(address), ClusterDownError("it has no slots"))
        raise NoServerAnswers(errors)

    def close(self) -> None:
        """Close the connections."""
        for client in list(self._clients.values()):  # another thread may add one
            client.close()


class AsyncNodes(_Nodes):
    """Clients for the tasks of one event loop. Connect on the first command."""

    _kind = AsyncRedis

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
        answers: list[Any] = [None] * len(commands)
        asked = [_NOWHERE] * len(commands)

        async def ask(address: Address | None, places: Sequence[int], asking: bool = False) -> None:
            some = [commands[place] for place in places]
            found = await self._execute(address, some, asking) if address else _uncovered(len(some))
            for place, answer in zip(places, found, strict=True):
                answers[place], asked[place] = answer, address or _NOWHERE

        by_master = self.slots.by_master(commands)
        await asyncio.gather(*(ask(*each) for each in by_master.items()))
        for _ in range(REDIRECTIONS):
            redirections = self.slots.redirections(answers, asked).items()
            await asyncio.gather(*(ask(to.address, some, to.asking) for to, some in redirections))
        self.slots.note(answers, asked)
        return answers

    async def _execute(self, address: Address, commands: Sequence[Command], asking: bool) -> Any:
        try:
            async with self.at(address).pipeline(transaction=False) as pipeline:
                _queue(pipeline, commands, asking)
                answers = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            return [error] * len(commands)
        return answers[1::2] if asking else answers

    async def discover(self) -> None:
        """Ask for the masters. Raises `NoServerAnswers` if no node names them."""
        errors: dict[str, Exception] = {}
        for address in self.slots.nodes[:ASKED]:
            try:
                self.slots.learn(await self.at(address).execute_command("CLUSTER SLOTS"), address)
            except (RedisError, OSError) as error:
                errors[_named(address)] = error
                self.slots.failed(address)
            if self.slots.known:
                for client in self._gone():
                    await client.aclose()
                return
            errors.setdefault(_named(address), ClusterDownError("it has no slots"))
        raise NoServerAnswers(errors)

    async def aclose(self) -> None:
        """Close the connections."""
        for client in list(self._clients.values()):
            await client.aclose()
