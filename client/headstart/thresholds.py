"""The readers that executors import: how confident must a guess be, here and now?

A mirror in the process answers, kept fresh by what Redis announces; what it does not hold is one
round trip, for the whole fallback chain of a context. A reader never raises for what goes wrong at
Redis: it answers with what it last knew, marked stale, or the conservative default. Nothing here
decides or learns.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import Any, Self

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.retry import Retry

from headstart.answers import DEFAULT_SPECULATE, DEFAULT_SUGGEST, Threshold
from headstart.entries import Question
from headstart.following import FollowerThread
from headstart.modes import Mode, ModeQuestion
from headstart.reading import PAUSE_S, Context, Reader, redis_address

__all__ = [
    "DEFAULT_SPECULATE",
    "DEFAULT_SUGGEST",
    "PAUSE_S",
    "AsyncThresholds",
    "Context",
    "Threshold",
    "Thresholds",
    "redis_address",
]


class Thresholds(Reader):
    """Reads thresholds; from any number of threads, also after a fork.

    `timeout_s` bounds each wait for Redis; `levels` refine a workflow type, as in the service.
    An answer that Redis has not confirmed for `staleness_s` seconds is asked for again (0: every
    one is, and nothing is followed). `mirror_limit`: contexts that are kept, about 1.5 KB each.

        with Thresholds("redis://localhost:6379") as thresholds:
            answer = thresholds.get(workflow_type="refund", domain="retail", user_id="u7")
            start_early = confidence >= answer.speculate
    """

    _connect = staticmethod(redis.Redis.from_url)
    _retry = Retry

    def __init__(self, redis_url: str, **options: Any) -> None:
        """Take the arguments above; connect on the first `get`."""
        super().__init__(redis_url, **options)
        self._start()
        _readers.add(self)

    def _start(self) -> None:
        self._mine = threading.local()
        # Of the threads that live: one that ends lets go of its own.
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._starting = threading.Lock()
        self._thread: FollowerThread | None = None

    def _client(self) -> Any:
        """Return this thread's own connection: a pool costs a third of a read and most of its p99.

        Never one from before a fork, which parent and child would both read from.
        """
        held = getattr(self._mine, "held", None)
        if held is None or held[0] != os.getpid():
            held = self._mine.held = (os.getpid(), self._connected(single_connection_client=True))
            self._clients.add(held[1])
        return held[1]

    def get(
        self, context: Context | None = None, /, *, tool: str | None = None, **fields: object
    ) -> Threshold:
        """Return the thresholds of a context, given as a mapping, as keywords, or both.

        `tenant` is "default" unless given; `tool` is whose overrides apply. Raises `ValueError`
        without `workflow_type`.
        """
        given = fields if context is None else {**context, **fields} if fields else context
        known = self._hit(given, tool)
        if known is None:
            asked = self._ask(given, tool)
            known = self._learned(asked) if isinstance(asked, Question) else asked
        if known.version is not None:
            return known
        asked = self._ask_default(given)
        default = self._learned(asked) if isinstance(asked, Question) else asked
        return known.over(default)

    def _learned(self, asked: Question) -> Threshold:
        """Return what Redis says; the last known where it does not answer."""
        asked_at = self._clock()
        try:
            values = self._client().hmget(asked.key, asked.fields)
        except (redis.RedisError, OSError) as error:
            return self._unanswered(asked, error)
        return self._answered(asked, values, asked_at)

    def mode(self, tenant: str = "default", agent_id: str | None = None) -> Mode:
        """Return whether guesses may be acted on: the most restrictive of all that applies."""
        asked = self._ask_mode(tenant, agent_id)
        if not isinstance(asked, ModeQuestion):
            return asked
        asked_at = self._clock()
        try:
            pipeline = asked.through(self._client().pipeline(transaction=False))
            values = pipeline.execute(raise_on_error=False)
        except (redis.RedisError, OSError) as error:
            return self._mode_unanswered(asked, error)
        return self._mode_answered(asked, values, asked_at)

    def _follow(self) -> None:
        with self._starting:
            if self._thread is None:
                self._follower = self._new_follower()
                self._thread = FollowerThread(self._follower)
                self._thread.start()
                self._ending = weakref.finalize(self, self._thread.stop)
        self._thread.wake()

    def close(self) -> None:
        """Close the connections of every thread."""
        if self._thread is not None:
            self._ending()
            self._thread = self._follower = None
        for client in list(self._clients):
            client.close()
        self._clients.clear()
        self._mine = threading.local()

    def _after_fork(self) -> None:
        """Begin anew: the thread is gone, connections and what is half done are the parent's."""
        if self._thread is not None:
            self._ending.detach()
        self._begin()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncThresholds(Reader):
    """`Thresholds` for asyncio: the same arguments and answers, within one event loop.

    async with AsyncThresholds("redis://localhost:6379") as thresholds:
        answer = await thresholds.get(workflow_type="refund", domain="retail")
    """

    _connect = staticmethod(redis.asyncio.Redis.from_url)
    _retry = AsyncRetry

    def __init__(self, redis_url: str, **options: Any) -> None:
        """Take the arguments of `Thresholds`; connect on the first `get`."""
        super().__init__(redis_url, **options)
        self._redis = self._connected()
        self._task: asyncio.Task[None] | None = None

    async def get(
        self, context: Context | None = None, /, *, tool: str | None = None, **fields: object
    ) -> Threshold:
        """Return the thresholds of a context; see `Thresholds.get`."""
        given = fields if context is None else {**context, **fields} if fields else context
        known = self._hit(given, tool)
        if known is None:
            asked = self._ask(given, tool)
            known = await self._learned(asked) if isinstance(asked, Question) else asked
        if known.version is not None:
            return known
        asked = self._ask_default(given)
        default = await self._learned(asked) if isinstance(asked, Question) else asked
        return known.over(default)

    async def _learned(self, asked: Question) -> Threshold:
        """Return what Redis says; the last known where it does not answer."""
        asked_at = self._clock()
        try:
            values = await self._redis.hmget(asked.key, asked.fields)
        except (redis.RedisError, OSError) as error:
            return self._unanswered(asked, error)
        return self._answered(asked, values, asked_at)

    async def mode(self, tenant: str = "default", agent_id: str | None = None) -> Mode:
        """Return whether guesses may be acted on; see `Thresholds.mode`."""
        asked = self._ask_mode(tenant, agent_id)
        if not isinstance(asked, ModeQuestion):
            return asked
        asked_at = self._clock()
        try:
            pipeline = asked.through(self._redis.pipeline(transaction=False))
            values = await pipeline.execute(raise_on_error=False)
        except (redis.RedisError, OSError) as error:
            return self._mode_unanswered(asked, error)
        return self._mode_answered(asked, values, asked_at)

    def _follow(self) -> None:
        if self._task is None or self._task.done():
            self._follower = self._new_follower()
            self._task = asyncio.create_task(self._follower.run())
        if self._follower is not None:
            self._follower.wake()

    async def close(self) -> None:
        """Close the connections."""
        task, self._task, self._follower = self._task, None, None
        while task is not None and not task.done():
            task.cancel()  # a connection that is just being made may swallow it
            await asyncio.wait([task], timeout=0.1)
        await self._redis.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_readers: weakref.WeakSet[Thresholds] = weakref.WeakSet()


def _after_fork() -> None:
    for reader in list(_readers):
        reader._after_fork()


os.register_at_fork(after_in_child=_after_fork)
