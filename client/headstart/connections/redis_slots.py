"""Which master of a Redis Cluster has which slot, and where commands are sent next. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ClusterError,
    ConnectionError,
    MovedError,
    TimeoutError,
)

Address = tuple[str, int]
"""Host and port of a node."""
Command = tuple[str, ...]
"""The words of a command; the second is its key."""
REDIRECTIONS: Final = 2
"""Most redirections followed: to where a slot is now, and to where its keys are moved to."""
NODE_ERRORS: Final = (ConnectionError, TimeoutError, ClusterError, OSError)
"""Errors of a node that does not respond or cannot serve, whatever the key."""
_ASKING: Final[Command] = ("ASKING",)
_NOWHERE: Final = ("", 0)


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

    def take(self, response: Any, asked: Address) -> Exception | None:
        """Take a node's response to CLUSTER SLOTS, or its error; return why it has no masters."""
        if isinstance(response, Exception):
            self.failed(asked)
            return response
        self.learn(response, asked)
        return None if self.known else ClusterDownError("it has no slots")

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
            if isinstance(answer, NODE_ERRORS):
                self.failed(address)


def _address(named: Sequence[Any], asked: Address) -> Address:
    """Return the address that a node named; a node that knows no host of its own means itself."""
    host = named[0].decode() if isinstance(named[0], bytes) else named[0]
    return (asked[0] if host in (None, "", "?") else str(host)), int(named[1])


class NodeRequest(NamedTuple):
    """What is sent to one node at once. `places`: of the commands that it is for."""

    address: Address
    commands: Sequence[Command]
    places: Sequence[int]


class CommandExchange:
    """What is sent for some commands, and their responses. No I/O."""

    def __init__(self, slots: SlotMap, commands: Sequence[Command]) -> None:
        self._slots, self._commands = slots, commands
        self.answers: list[Any] = [None] * len(commands)
        self._asked = [_NOWHERE] * len(commands)

    def rounds(self) -> Iterator[list[NodeRequest]]:
        """Yield requests to the masters, then to where the responses to those redirect.

        The responses to all of one list are to be `put` before the next.
        """
        by_master = self._slots.by_master(self._commands)
        for place in by_master.get(None, ()):
            self.answers[place] = ClusterDownError("no master has the slot")
        yield [self._request(address, each) for address, each in by_master.items() if address]
        for _ in range(REDIRECTIONS):
            redirections = self._slots.redirections(self.answers, self._asked)
            yield [self._request(to.address, each, to.asking) for to, each in redirections.items()]
        self._slots.note(self.answers, self._asked)

    def _request(
        self, address: Address, places: Sequence[int], asking: bool = False
    ) -> NodeRequest:
        commands = [self._commands[place] for place in places]
        if asking:
            commands = [word for each in commands for word in (_ASKING, each)]
        return NodeRequest(address, commands, places)

    def put(self, request: NodeRequest, responses: Sequence[Any]) -> None:
        """Take the responses to a request's commands, or errors in their places."""
        step = len(request.commands) // len(request.places)  # 2 with ASKING
        for place, answer in zip(request.places, responses[step - 1 :: step], strict=True):
            self.answers[place], self._asked[place] = answer, request.address
