"""How the tasks of an event loop ask Redis: what they ask at once is one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

import redis

from headstart.thresholds.modes import ModeQuery
from headstart.thresholds.queries import Asked, Flight, Reply, key_of, read_reply, turn_s
from headstart.thresholds.subscriber import FIELDS_MAX

ATTEMPTS: Final = 3
"""Most round trips for a question while the event loop itself stands still."""
CANCEL_S: Final = 0.01
"""Seconds after which a cancellation that did not end a round trip is repeated."""

T = TypeVar("T")


class _Flight(Flight):
    """`since`: when it was asked, by the loop's clock. `waiters`: one for each task that asks."""

    def __init__(self, question: Asked, since: float) -> None:
        super().__init__(question)
        self.since = since
        self.waiters: list[asyncio.Future[Reply]] = []

    def tell(self, reply: Reply) -> None:
        """Answer who waits, and was not answered yet."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(reply)


def _put(question: Asked, pipeline: Any) -> int:
    """Put a question's commands into a pipeline; return how many they are."""
    if isinstance(question, ModeQuery):
        question.through(pipeline)
        return 2
    pipeline.hmget(question.key, question.fields)
    return 1


class TaskAsker:
    """Asks for the tasks of the event loop that runs: one round trip at a time.

    What is asked within one turn of the loop, or while a round trip is under way, goes together.
    """

    def __init__(
        self, client: Any, *, clock: Callable[[], float], staleness_s: float, timeout_s: float
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._redis, self._clock, self._staleness_s = client, clock, staleness_s
        self._timeout_s, self._wait_s = timeout_s, turn_s(timeout_s)
        self._waiting: dict[Hashable, _Flight] = {}
        self._sent: dict[Hashable, _Flight] = {}
        self._starting = False
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Asked) -> Reply:
        """Ask, or wait for the answer to the same question that another task has asked."""
        key = key_of(question)
        flight = self._waiting.get(key)
        if flight is None:
            flight = self._sent.get(key)
        if flight is None or not flight.answers(self._clock(), self._staleness_s):
            flight = self._waiting[key] = _Flight(question, self.loop.time())
            if self._task is None and not self._starting:
                self._starting = True
                self.loop.call_soon(self._start)
        answer: asyncio.Future[Reply] = self.loop.create_future()
        flight.waiters.append(answer)
        return await answer

    def _start(self) -> None:
        self._starting = False
        self._task = self.loop.create_task(self._run())

    async def _run(self) -> None:
        """Send until nothing waits."""
        try:
            while self._waiting:
                await self._send(self._next())
        finally:
            self._task = None
            self._give_up()

    def _next(self) -> dict[Hashable, _Flight]:
        """Take what goes into the next round trip; answer what has waited for too long."""
        now, fields = self.loop.time(), 0
        batch: dict[Hashable, _Flight] = {}
        while self._waiting and fields < FIELDS_MAX:
            key = next(iter(self._waiting))
            flight = self._waiting.pop(key)
            if all(waiter.done() for waiter in flight.waiters):
                continue  # all were cancelled
            if now - flight.since > self._wait_s:
                flight.tell(flight.reply)
                continue
            fields += len(flight.question.fields)
            batch[key] = flight
        return batch

    async def _send(self, batch: dict[Hashable, _Flight]) -> None:
        asked_at = self._clock()
        for flight in batch.values():
            flight.asked_at = asked_at
        self._sent = batch
        questions = [flight.question for flight in batch.values()]
        try:
            replies = await self._round_trip(questions, asked_at)
        except Exception as error:
            replies = [Reply(question, None, asked_at, error) for question in questions]
            self._give_up()
        except asyncio.CancelledError:
            _tell_unsent(batch.values())
            raise
        finally:
            self._sent = {}
        for flight, reply in zip(batch.values(), replies, strict=True):
            flight.tell(reply)

    async def _round_trip(self, questions: list[Asked], asked_at: float) -> list[Reply]:
        """Ask Redis; again, where this loop was not there to receive the answers in time."""
        with _Stall(self.loop, self._timeout_s / 4.0) as stall:
            attempt = 1
            while True:
                try:
                    return await _ending(self._execute(questions, asked_at))
                except redis.TimeoutError:
                    if attempt == ATTEMPTS or not stall.noticed():
                        raise
                attempt += 1

    async def _execute(self, questions: list[Asked], asked_at: float) -> list[Reply]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            counts = [_put(question, pipeline) for question in questions]
            answers = iter(await pipeline.execute(raise_on_error=False))
        return [
            read_reply(question, list(islice(answers, count)), asked_at)
            for question, count in zip(questions, counts, strict=True)
        ]

    def _give_up(self) -> None:
        """Answer all that waits as not sent."""
        waiting, self._waiting = self._waiting, {}
        _tell_unsent(waiting.values())

    async def close(self) -> None:
        """Close the connections; who still waits is answered."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=self._wait_s)
        await self._redis.aclose()


async def _ending(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work, which ends with the task that waits for it.

    redis-py uses `asyncio.wait_for`, which in Python 3.11 may swallow a cancellation: the work
    would go on until its timeout, and `asyncio.run` wait for it.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_S)
    return task.result()


def _tell_unsent(flights: Iterable[_Flight]) -> None:
    for flight in flights:
        flight.tell(flight.reply)


class _Stall:
    """Notices an event loop that stands still: a timeout then says nothing about Redis.

    A timer that is due every `every_s` seconds comes late by as long as the loop was away.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float) -> None:
        self._loop, self._every_s = loop, every_s
        self._longest = 0.0

    def __enter__(self) -> _Stall:
        self._arm()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _arm(self) -> None:
        self._due = self._loop.time() + self._every_s
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._longest = max(self._longest, self._loop.time() - self._due)
        self._arm()

    def noticed(self) -> bool:
        """Return whether it stood still for longer than `every_s` since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest > self._every_s
