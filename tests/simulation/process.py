"""A simulated process and its way to the world: it runs, is suspended, or is dead.

A call of a port travels, takes effect at one moment, and travels back; a process may die at every
point of that way. What it has sent may still arrive after its death.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaConnectionError

from tests.simulation.loop import OWNER, Ended

if TYPE_CHECKING:
    from tests.simulation.world import World

Failure = Callable[[str], Exception]
"""Makes the error that a caller sees when a port fails."""


class BrokerAway(KafkaConnectionError, ConnectionError):  # type: ignore[misc]
    """What the clients of the broker raise."""


class StoreFailed(Exception):
    """What the local store raises; anything that it raises must end the process."""


@dataclass(slots=True, eq=False)
class Call:
    """A call under way."""

    process: Process
    port: str
    effect: Callable[[], Any]
    answer: asyncio.Future[Any]
    failure: Failure
    sent: float
    replying: bool = False
    result: Any = None
    error: Exception | None = None


class Process:
    """Something that can be killed."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world
        self.running, self.paused, self.dead = True, False, False
        self.stalled = 0.0
        """Seconds of its last suspension."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.parked: list[asyncio.Handle] = []
        self.context = copy_context()
        self.context.run(OWNER.set, self)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in this process's name."""
        return self.world.loop.create_task(work, context=self.context)

    def call(
        self, port: str, effect: Callable[[], Any], failure: Failure = BrokerAway
    ) -> asyncio.Future[Any]:
        """Send a call; its answer is to be awaited."""
        if self.dead:
            raise Ended
        world = self.world
        answer = world.loop.create_future()
        world.calls.append(Call(self, port, effect, answer, failure, world.loop.now))
        return answer

    def do(self, port: str, effect: Callable[[], Any], failure: Failure = BrokerAway) -> Any:
        """Do at once what needs no network; may be the process's last deed."""
        if self.dead:
            raise Ended
        how = self.world.fate(port)
        if how == "crash before":
            self.kill(f"killed before {port}")
            raise Ended
        if how == "refused":
            raise failure(f"{port} was refused")
        result = effect()
        if how == "crash after":
            self.kill(f"killed after {port}")
            raise Ended
        if how == "lost reply":
            raise failure(f"{port} failed late")
        return result

    def on_heartbeat(self) -> None:
        """Receive the group's notification with a heartbeat."""

    def pause(self) -> None:
        """Suspend it."""
        self.running, self.paused = False, True

    def resume(self) -> None:
        """Go on where it stood."""
        if self.paused:
            self.running, self.paused = True, False
            self.world.loop.unpark(self.parked)
            self.parked = []

    def kill(self, why: str) -> None:
        """End at once: nothing of this process runs any more."""
        if self.dead:
            return
        self.running, self.paused, self.dead = False, False, True
        self.world.note(f"{self.name} dies: {why}")
        self.world.forget_calls(self)
        for task in self.tasks:
            with suppress(BaseException):  # a running coroutine ends with the caller's Ended
                task.get_coro().close()  # type: ignore[union-attr]
        self.tasks, self.parked = [], []
        self.world.died(self)


def end_process(where: str, error: BaseException) -> None:
    """Stand in for `agents.fatal.exit_fatally`, in the name of the current process."""
    if isinstance(error, Ended | GeneratorExit):
        raise error
    process = OWNER.get()
    assert process is not None
    process.world.ended(process, where, error)
    process.kill(f"ends itself in {where}: {error!r}")
    raise Ended
