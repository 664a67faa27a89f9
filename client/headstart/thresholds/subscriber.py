"""Keeps a reader's caches up to date with announcements of Redis, on a connection of its own.

One coroutine: a task of the asyncio reader's loop, or alone in a thread of the threaded reader. It
subscribes to the cached hashes, queries each once its subscription is confirmed, and pings: what
was announced before a ping has arrived when the pong has. Of a cluster it does so at every master
(`headstart.thresholds.feeds`). A lost connection is reopened for as long as the reader lives.
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

from headstart.connections.redis_clients import REDIS_ERRORS
from headstart.keys import MODES
from headstart.thresholds.cache import ThresholdCache
from headstart.thresholds.cache_entries import CacheQuery, SubscriptionHeartbeat
from headstart.thresholds.feeds import Feed, new_feed
from headstart.thresholds.modes import ModeCache, ModeQuery

RETRY_S: Final = 0.25
"""Seconds between two attempts to connect."""
SUBSCRIBE_MAX: Final = 500
"""Most channels in one command."""
FIELDS_MAX: Final = 2_000
"""Most fields queried in one round trip, unless a single hash has more."""
MODES_S: Final = 2.0
"""Seconds between queries of the modes: a mode set in Redis by hand is not announced."""

_Query = TypeVar("_Query", CacheQuery, ModeQuery)

_LOG = logging.getLogger(__name__)


class UpdateSubscriber:
    """Keeps a reader's caches as fresh as its connection to Redis."""

    def __init__(
        self,
        redis_url: str,
        cache: ThresholdCache,
        modes: ModeCache,
        *,
        timeout_s: float,
        address: str,
    ) -> None:
        self._url, self._cache, self._modes = redis_url, cache, modes
        self._timeout_s, self._address = timeout_s, address
        # Four pings within the bound: one that is late makes nothing stale.
        self._ping_s = cache.staleness_s / 4.0
        self._silence_s = max(timeout_s, cache.staleness_s)
        self._outage_logged = False
        self._wake = asyncio.Event()
        self._subscribed: asyncio.Queue[str] = asyncio.Queue()

    def wake(self) -> None:
        """Subscribe to newly cached hashes. Call from the loop's own thread only."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled, even if a library swallows the cancellation."""
        while not _is_cancelled():
            try:
                await self._follow()
            except REDIS_ERRORS as error:
                if not self._outage_logged:
                    _LOG.info("no connection to Redis at %s (%s); retrying", self._address, error)
                self._outage_logged = True
            except Exception:  # else the subscription would end silently
                _LOG.exception("subscription to Redis at %s failed; retrying", self._address)
            finally:
                self._cache.disconnected()
                self._modes.disconnected()
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        """Connect and subscribe; raise the error that ends a connection."""
        # Three that stand still leave time for the connections themselves.
        feed = new_feed(self._url, self._silence_s / 4.0)
        try:
            begun = self._cache.clock()
            async with asyncio.timeout(self._silence_s):
                links = [_Link(each, begun) for each in await feed.open()]
            heartbeat = SubscriptionHeartbeat(begun)
            self._subscribed = asyncio.Queue()
            self._cache.connected(heartbeat)
            self._cache.counts.connections += 1
            self._outage_logged = False
            for link in links:
                await self._send(link, "SUBSCRIBE", MODES)
            await _run_until_first_ends(
                *(self._receive(link, links, heartbeat) for link in links),
                self._ping_and_subscribe(feed, links, heartbeat),
                self._refresh(feed),
            )
        finally:
            # Over TLS asyncio waits 30 s for a server that stands still to end its side.
            with contextlib.suppress(*REDIS_ERRORS):
                async with asyncio.timeout(self._silence_s):
                    await feed.close()

    async def _send(self, link: _Link, *command: str) -> None:
        """Send a command whose response `_receive` reads."""
        async with asyncio.timeout(self._silence_s):
            await link.connection.send_command(*command)

    async def _receive(
        self, link: _Link, links: Sequence[_Link], heartbeat: SubscriptionHeartbeat
    ) -> None:
        """Handle announcements, pongs and confirmed subscriptions of one connection."""
        while True:
            # No timer per announcement: `_ping_and_subscribe` notices a missing pong.
            match await link.connection.read_response(disable_decoding=True, timeout=math.inf):
                case [b"message", channel, payload]:
                    if channel == MODES.encode():
                        self._modes.apply_announcement()
                        self._subscribed.put_nowait(MODES)
                    else:
                        self._cache.apply_announcement(channel.decode(), payload)
                case [b"pong", sent]:
                    link.confirmed_at = float(sent)
                    heartbeat.confirmed_at = min(each.known_at for each in links)
                case [b"subscribe", channel, _count]:
                    if channel == MODES.encode():
                        link.announces_modes = True
                        if all(each.announces_modes for each in links):
                            self._modes.confirm_subscription(heartbeat)
                            self._subscribed.put_nowait(MODES)
                    elif self._cache.confirm_subscription(key := channel.decode()):
                        self._subscribed.put_nowait(key)
                case _:
                    pass  # unsubscribed

    async def _ping_and_subscribe(
        self, feed: Feed, links: Sequence[_Link], heartbeat: SubscriptionHeartbeat
    ) -> None:
        """Send pings and subscriptions. Raises `redis.TimeoutError` if no pong arrives."""
        loop = asyncio.get_running_loop()
        ping_at, modes_at = loop.time(), loop.time() + MODES_S
        while not _is_cancelled():
            await self._subscribe(feed, links)
            if loop.time() >= modes_at:
                modes_at = loop.time() + MODES_S
                self._subscribed.put_nowait(MODES)
            if loop.time() >= ping_at:
                if self._cache.clock() - heartbeat.confirmed_at > self._silence_s:
                    raise redis.TimeoutError(f"no response for {self._silence_s:.1f} s")
                ping_at = loop.time() + self._ping_s
                await self._ping(feed, links, heartbeat)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(ping_at):
                    await self._wake.wait()
            self._wake.clear()

    async def _subscribe(self, feed: Feed, links: Sequence[_Link]) -> None:
        """Send the changes of subscriptions, each to the server of its hash."""
        changes = zip(
            ("SUBSCRIBE", "UNSUBSCRIBE"), self._cache.take_subscription_changes(), strict=True
        )
        for command, keys in changes:
            for place, link in enumerate(links):
                for some in _channel_batches([key for key in keys if feed.place(key) == place]):
                    await self._send(link, command, *some)

    async def _ping(
        self, feed: Feed, links: Sequence[_Link], heartbeat: SubscriptionHeartbeat
    ) -> None:
        """Send a ping on every connection, and check that each still announces the same hashes."""
        sent = self._cache.clock()
        for link in links:
            await self._send(link, "PING", repr(sent))
        async with asyncio.timeout(self._silence_s):
            await feed.check()
        for link in links:
            link.checked_at = sent
        heartbeat.confirmed_at = min(each.known_at for each in links)

    async def _refresh(self, feed: Feed) -> None:
        """Query hashes that have just been subscribed to, and modes that have changed."""
        while not _is_cancelled():
            keys = {await self._subscribed.get()}
            while not self._subscribed.empty():
                keys.add(self._subscribed.get_nowait())
            if MODES in keys:
                keys.discard(MODES)
                await self._refresh_modes(feed)
            queries = [q for key in keys if (q := self._cache.build_refresh_query(key)) is not None]
            for some in _query_batches(queries):
                answers = await self._ask(feed, some)
                for query, values in zip(some, answers, strict=True):
                    if not isinstance(values, Exception):  # else `get` queries, and logs the error
                        self._cache.store_refresh(query, values)

    async def _refresh_modes(self, feed: Feed) -> None:
        for some in _query_batches(self._modes.build_refresh_queries()):
            asked_at = self._cache.clock()
            answers = await self._ask(feed, some)
            for index, query in enumerate(some):
                self._modes.store_response(query, answers[2 * index : 2 * index + 2], asked_at)

    async def _ask(self, feed: Feed, queries: Sequence[CacheQuery | ModeQuery]) -> list[Any]:
        async with asyncio.timeout(self._silence_s):
            return await feed.answers([each for query in queries for each in query.commands])


class _Link:
    """One connection. `confirmed_at`: what it announced before this moment has arrived.

    `checked_at`: until then, what it announces was announced nowhere else. Monotonic seconds.
    """

    __slots__ = ("announces_modes", "checked_at", "confirmed_at", "connection")

    def __init__(self, connection: Any, begun: float) -> None:
        self.connection = connection
        self.confirmed_at = self.checked_at = begun
        self.announces_modes = False

    @property
    def known_at(self) -> float:
        """The earlier of both."""
        return min(self.confirmed_at, self.checked_at)


class SubscriberThread(threading.Thread):
    """Runs a subscriber in an event loop and thread of its own, for the threaded reader."""

    def __init__(self, subscriber: UpdateSubscriber) -> None:
        super().__init__(name="headstart-subscriber", daemon=True)
        self._subscriber = subscriber
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False

    def run(self) -> None:
        """Run the subscriber until `stop`."""
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if not self._stopped:  # else `stop` was called before the loop ran
            await self._subscriber.run()

    def wake(self) -> None:
        """Have the subscriber subscribe to newly cached hashes."""
        if self._loop is not None:  # else it looks at once when it starts
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._subscriber.wake)

    def stop(self) -> None:
        """End the subscriber, and wait for it up to 2 s."""
        self._stopped = True
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        self.join(2.0)


def _is_cancelled() -> bool:
    """Return whether the running task was ever cancelled.

    In Python 3.11 `asyncio.wait_for` swallows a cancellation that arrives as its wait ends.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _run_until_first_ends(*coroutines: Any) -> None:
    """Run until one of them ends, which happens by an error only; raise it."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _channel_batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), SUBSCRIBE_MAX):
        yield keys[start : start + SUBSCRIBE_MAX]


def _query_batches(queries: Sequence[_Query]) -> Iterator[list[_Query]]:
    batch: list[_Query] = []
    total = 0
    for query in queries:
        batch.append(query)
        total += len(query.fields)
        if total >= FIELDS_MAX:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
