"""Follows the announcements of Redis for a reader's mirrors, on one connection of its own.

One coroutine: a task of the asyncio reader's loop, or the only one in a thread of the other's. It
subscribes to the hashes that the mirror keeps, asks for each once its subscription stands, and
pings: what was announced before a ping has arrived when its answer has. What it learns, the mirrors
decide about. A lost line is tried again for as long as the reader lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headstart.keys import MODES
from headstart.thresholds.cache import ThresholdCache
from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.heartbeat import SubscriptionHeartbeat
from headstart.thresholds.modes import ModeCache, ModeQuery

RETRY_S: Final = 0.25
"""Seconds between two attempts to connect."""
SUBSCRIBE_MAX: Final = 500
"""Most channels in one command."""
FIELDS_MAX: Final = 2_000
"""Most fields asked for in one round trip, unless one hash alone has more."""
MODES_S: Final = 2.0
"""How often modes are asked for again: what is set in Redis by hand is not announced."""

_Asked = TypeVar("_Asked", CacheQuery, ModeQuery)

_LOG = logging.getLogger(__name__)


class UpdateSubscriber:
    """Keeps a reader's mirrors as fresh as the line to Redis is."""

    def __init__(
        self,
        redis_url: str,
        mirror: ThresholdCache,
        modes: ModeCache,
        *,
        timeout_s: float,
        address: str,
    ) -> None:
        self._url, self._mirror, self._modes = redis_url, mirror, modes
        self._timeout_s, self._address = timeout_s, address
        # four pings within the bound: one that is late makes nothing stale
        self._ping_s = mirror.staleness_s / 4.0
        self._silence_s = max(timeout_s, mirror.staleness_s)
        self._said = False  # that there is no line, once per outage
        self._wake = asyncio.Event()
        self._subscribed: asyncio.Queue[str] = asyncio.Queue()

    def wake(self) -> None:
        """Tell that the mirror wants to follow other hashes. From the loop's own thread only."""
        self._wake.set()

    async def run(self) -> None:
        """Follow until cancelled, also where a library has swallowed the cancellation."""
        while not _cancelled():
            try:
                await self._follow()
            except (redis.RedisError, OSError) as error:
                if not self._said:
                    _LOG.info("no line to Redis at %s (%s); trying on", self._address, error)
                self._said = True
            except Exception:  # or nothing would be followed from then on, and nobody told
                _LOG.exception("following Redis at %s failed; trying on", self._address)
            finally:
                self._mirror.lost()
                self._modes.lost()
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        """Connect and follow; raise what ends the connection."""
        client: Any = redis.asyncio.Redis.from_url(
            self._url,
            protocol=2,
            # `asyncio.timeout` bounds every wait here: with a timeout of its own redis-py uses
            # `asyncio.wait_for`, which swallows cancellations in Python 3.11
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )
        connection = client.connection_pool.make_connection()
        try:
            heard = self._mirror.clock()
            async with asyncio.timeout(self._silence_s):
                await connection.connect()
            line = SubscriptionHeartbeat(heard)
            self._subscribed = asyncio.Queue()
            self._mirror.connected(line)
            self._mirror.counts.connections += 1
            self._said = False
            await self._tell(connection, "SUBSCRIBE", MODES)
            await _first_to_end(
                self._hear(connection, line), self._speak(connection, line), self._ask(client)
            )
        finally:
            with contextlib.suppress(redis.RedisError, OSError):
                await connection.disconnect(nowait=True)
                await client.aclose()

    async def _tell(self, connection: Any, *command: str) -> None:
        """Send a command whose answer `_hear` takes."""
        async with asyncio.timeout(self._silence_s):
            await connection.send_command(*command)

    async def _hear(self, connection: Any, line: SubscriptionHeartbeat) -> None:
        """Take what arrives."""
        while True:
            # No timer for each announcement: who speaks sees that nothing answers.
            match await connection.read_response(disable_decoding=True, timeout=math.inf):
                case [b"message", channel, payload]:
                    if channel == MODES.encode():
                        self._modes.changed()
                        self._subscribed.put_nowait(MODES)
                    else:
                        self._mirror.announced(channel.decode(), payload)
                case [b"pong", sent]:
                    line.heard = float(sent)
                case [b"subscribe", channel, _count]:
                    if channel == MODES.encode():
                        self._modes.subscribed(line)
                        self._subscribed.put_nowait(MODES)
                    elif self._mirror.subscribed(key := channel.decode()):
                        self._subscribed.put_nowait(key)
                case _:
                    pass  # unsubscribed

    async def _speak(self, connection: Any, line: SubscriptionHeartbeat) -> None:
        """Ping, and subscribe as the mirror wants. Pings that nobody answers are an error."""
        loop = asyncio.get_running_loop()
        ping_at, modes_at = loop.time(), loop.time() + MODES_S
        while not _cancelled():
            begin, end = self._mirror.to_follow()
            for command, keys in (("SUBSCRIBE", begin), ("UNSUBSCRIBE", end)):
                for some in _parts(keys):
                    await self._tell(connection, command, *some)
            if loop.time() >= modes_at:
                modes_at = loop.time() + MODES_S
                self._subscribed.put_nowait(MODES)
            if loop.time() >= ping_at:
                if self._mirror.clock() - line.heard > self._silence_s:
                    raise redis.TimeoutError(f"no answer for {self._silence_s:.1f} s")
                ping_at = loop.time() + self._ping_s
                await self._tell(connection, "PING", repr(self._mirror.clock()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(ping_at):
                    await self._wake.wait()
            self._wake.clear()

    async def _ask(self, client: Any) -> None:
        """Ask again for what has just been subscribed to, and for modes that have changed."""
        while not _cancelled():
            keys = {await self._subscribed.get()}
            while not self._subscribed.empty():
                keys.add(self._subscribed.get_nowait())
            if MODES in keys:
                keys.discard(MODES)
                await self._ask_modes(client)
            questions = [q for key in keys if (q := self._mirror.held(key)) is not None]
            for some in _batches(questions):
                async with (
                    asyncio.timeout(self._silence_s),
                    client.pipeline(transaction=False) as pipeline,
                ):
                    for question in some:
                        pipeline.hmget(question.key, question.fields)
                    answers = await pipeline.execute(raise_on_error=False)
                for question, values in zip(some, answers, strict=True):
                    if not isinstance(values, Exception):  # else `get` asks, and says so
                        self._mirror.refilled(question, values)

    async def _ask_modes(self, client: Any) -> None:
        for some in _batches(self._modes.held()):
            asked_at = self._mirror.clock()
            async with (
                asyncio.timeout(self._silence_s),
                client.pipeline(transaction=False) as pipeline,
            ):
                for question in some:
                    question.through(pipeline)
                answers = await pipeline.execute(raise_on_error=False)
            for place, question in enumerate(some):
                self._modes.filled(question, answers[2 * place : 2 * place + 2], asked_at)


class SubscriberThread(threading.Thread):
    """A follower with a loop and a thread of its own, for a reader that has none."""

    def __init__(self, follower: UpdateSubscriber) -> None:
        super().__init__(name="headstart-follower", daemon=True)
        self._follower = follower
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False

    def run(self) -> None:
        """Follow until stopped."""
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if not self._stopped:  # else before it could be told
            await self._follower.run()

    def wake(self) -> None:
        """Have the follower look at what the mirror wants to follow."""
        if self._loop is not None:  # else it is about to look for the first time
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._follower.wake)

    def stop(self) -> None:
        """End the follower, and wait for that."""
        self._stopped = True
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        self.join(2.0)


def _cancelled() -> bool:
    """Return whether the running task was ever cancelled, whether or not it was told of it.

    `asyncio.wait_for` of Python 3.11 swallows a cancellation that comes as its wait is over.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _first_to_end(*ways: Any) -> None:
    """Run until one of them ends, which none does but by an error; raise it."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), SUBSCRIBE_MAX):
        yield keys[start : start + SUBSCRIBE_MAX]


def _batches(questions: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    batch: list[_Asked] = []
    total = 0
    for question in questions:
        batch.append(question)
        total += len(question.fields)
        if total >= FIELDS_MAX:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
