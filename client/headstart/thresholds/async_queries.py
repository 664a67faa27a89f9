"""Queries Redis for the tasks of an event loop: concurrent queries share one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeVar

import redis

from headstart.connections.redis_nodes import AsyncNodes, queue_commands
from headstart.connections.redis_slots import Command
from headstart.thresholds.queries import (
    PendingQuery,
    Query,
    Reply,
    key_of,
    queue_timeout_s,
    read_reply,
)
from headstart.thresholds.subscriber import FIELDS_MAX

ATTEMPTS: Final = 3
"""Most round trips of a query while the event loop itself is blocked."""
CANCEL_S: Final = 0.01
"""Seconds after which a cancellation that did not end a round trip is repeated."""

T = TypeVar("T")


class _Pending(PendingQuery):
    """A query of tasks. `since`: the loop's time when it was queued. `waiters`: one per task."""

    def __init__(self, query: Query, since: float) -> None:
        super().__init__(query)
        self.since = since
        self.waiters: list[asyncio.Future[Reply]] = []

    def answer(self, reply: Reply) -> None:
        """Pass the reply to all tasks that still wait."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(reply)


class AsyncQueryClient:
    """Queries for the tasks of the running event loop: one round trip at a time.

    Queries made within one iteration of the loop, or during a round trip, are sent together.
    """

    def __init__(
        self, client: Any, *, clock: Callable[[], float], staleness_s: float, timeout_s: float
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._redis, self._clock, self._staleness_s = client, clock, staleness_s
        self._timeout_s, self._wait_s = timeout_s, queue_timeout_s(timeout_s)
        self._waiting: dict[Hashable, _Pending] = {}
        self._sent: dict[Hashable, _Pending] = {}
        self._starting = False
        self._task: asyncio.Task[None] | None = None

    async def ask(self, query: Query) -> Reply:
        """Send a query, or wait for the reply to an identical one of another task."""
        key = key_of(query)
        pending = self._waiting.get(key)
        if pending is None:
            pending = self._sent.get(key)
        if pending is None or not pending.is_fresh(self._clock(), self._staleness_s):
            pending = self._waiting[key] = _Pending(query, self.loop.time())
            if self._task is None and not self._starting:
                self._starting = True
                self.loop.call_soon(self._start)
        answer: asyncio.Future[Reply] = self.loop.create_future()
        pending.waiters.append(answer)
        return await answer

    def _start(self) -> None:
        self._starting = False
        self._task = self.loop.create_task(self._run())

    async def _run(self) -> None:
        """Send batches until no query waits."""
        try:
            while self._waiting:
                await self._send(self._next())
        finally:
            self._task = None
            self._answer_waiting()

    def _next(self) -> dict[Hashable, _Pending]:
        """Return the queries of the next round trip; answer those that waited too long."""
        now, fields = self.loop.time(), 0
        batch: dict[Hashable, _Pending] = {}
        while self._waiting and fields < FIELDS_MAX:
            key = next(iter(self._waiting))
            pending = self._waiting.pop(key)
            if all(waiter.done() for waiter in pending.waiters):
                continue  # all were cancelled
            if now - pending.since > self._wait_s:
                pending.answer(pending.reply)
                continue
            fields += len(pending.query.fields)
            batch[key] = pending
        return batch

    async def _send(self, batch: dict[Hashable, _Pending]) -> None:
        asked_at = self._clock()
        for pending in batch.values():
            pending.asked_at = asked_at
        self._sent = batch
        queries = [pending.query for pending in batch.values()]
        try:
            replies = await self._round_trip(queries, asked_at)
        except Exception as error:
            replies = [Reply(query, None, asked_at, error) for query in queries]
            self._answer_waiting()
        except asyncio.CancelledError:
            _answer_unsent(batch.values())
            raise
        finally:
            self._sent = {}
        for pending, reply in zip(batch.values(), replies, strict=True):
            pending.answer(reply)

    async def _round_trip(self, queries: list[Query], asked_at: float) -> list[Reply]:
        """Query Redis; again if this loop was blocked when the response should have arrived."""
        with _StallDetector(self.loop, self._timeout_s / 4.0) as stalls:
            attempt = 1
            while True:
                try:
                    return await _run_to_end(self._execute(queries, asked_at))
                except redis.TimeoutError:
                    if attempt == ATTEMPTS or not stalls.detected():
                        raise
                attempt += 1

    async def _execute(self, queries: list[Query], asked_at: float) -> list[Reply]:
        commands = [query.commands for query in queries]
        answers = iter(await self._answers(list(chain.from_iterable(commands))))
        return [
            read_reply(query, list(islice(answers, len(own))), asked_at)
            for query, own in zip(queries, commands, strict=True)
        ]

    async def _answers(self, commands: Sequence[Command]) -> list[Any]:
        """Return the responses to commands; raise a timeout if no server responds in time."""
        answers: list[Any]
        if isinstance(self._redis, AsyncNodes):
            answers = await self._redis.answers(commands)
            if all(isinstance(each, redis.TimeoutError) for each in answers):
                raise answers[0]
            return answers
        async with self._redis.pipeline(transaction=False) as pipeline:
            queue_commands(pipeline, commands)
            answers = await pipeline.execute(raise_on_error=False)
        return answers

    def _answer_waiting(self) -> None:
        """Answer all waiting queries as not sent."""
        waiting, self._waiting = self._waiting, {}
        _answer_unsent(waiting.values())

    async def close(self) -> None:
        """Close the connections; waiting tasks are answered."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=self._wait_s)
        await self._redis.aclose()


async def _run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result; a cancellation of the caller ends the coroutine too.

    redis-py uses `asyncio.wait_for`, which in Python 3.11 may swallow a cancellation: the coroutine
    would run until its timeout, and `asyncio.run` would wait for it.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_S)
    return task.result()


def _answer_unsent(flights: Iterable[_Pending]) -> None:
    for pending in flights:
        pending.answer(pending.reply)


class _StallDetector:
    """Detects a blocked event loop, whose timeouts are not due to Redis.

    A timer that is due every `every_s` seconds fires late by as long as the loop was blocked.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float) -> None:
        self._loop, self._every_s = loop, every_s
        self._longest = 0.0

    def __enter__(self) -> _StallDetector:
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

    def detected(self) -> bool:
        """Return whether the loop was blocked longer than `every_s` since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest > self._every_s
