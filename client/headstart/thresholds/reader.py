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
from typing import Any, Final, Self

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.retry import Retry

from headstart.thresholds.async_queries import TaskAsker
from headstart.thresholds.base_reader import PAUSE_S, BaseReader, Context, redis_address
from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.modes import Mode, ModeQuery
from headstart.thresholds.queries import ThreadAsker
from headstart.thresholds.subscriber import SubscriberThread
from headstart.thresholds.threshold import DEFAULT_SPECULATE, DEFAULT_SUGGEST, Threshold

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

CLOSE_S: Final = 2.0
"""How long `close` waits at most for what follows Redis to end."""


class Thresholds(BaseReader):
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
        self._asker = ThreadAsker(self._connecting(single_connection_client=True), **self._asking)
        self._starting = threading.Lock()
        self._thread: SubscriberThread | None = None

    def get(
        self, context: Context | None = None, /, *, tool: str | None = None, **fields: object
    ) -> Threshold:
        """Return the thresholds of a context, given as a mapping, as keywords, or both.

        `tenant` is "default" unless given; `tool` is whose overrides apply, also as `tool_id` where
        that is no level. Raises `InvalidArgument` without `workflow_type`, for an id that is no
        string, and for a name that is nearly that of the tenant, the tool, an id or a level.
        """
        if fields or type(context) is not dict:
            context = self._given(context, fields)
        if not self._known.issuperset(context):
            tool = self._tool(context, tool)
        given = context
        known = self._hit(given, tool)
        if known is None:
            asked = self._ask(given, tool)
            known = self._learned(asked) if isinstance(asked, CacheQuery) else asked
        if known.version is not None:
            return known
        asked = self._ask_default(given)
        default = self._learned(asked) if isinstance(asked, CacheQuery) else asked
        return known.over(default)

    def _learned(self, asked: CacheQuery) -> Threshold:
        """Return what Redis says; the last known where it does not answer."""
        return self._told(asked, self._asker.ask(asked))

    def mode(self, tenant: str = "default", agent_id: str | None = None, **unknown: object) -> Mode:
        """Return whether guesses may be acted on: the most restrictive of all that applies.

        Raises `TypeError` for any other keyword, naming the one that was probably meant.
        """
        if unknown:
            self._refuse_of_mode(unknown)
        asked = self._ask_mode(tenant, agent_id)
        if not isinstance(asked, ModeQuery):
            return asked
        return self._mode_told(asked, self._asker.ask(asked))

    def _follow(self) -> None:
        with self._starting:
            thread = self._thread
            if thread is None:
                self._follower = self._new_follower()
                thread = self._thread = SubscriberThread(self._follower)
                thread.start()
                self._ending = weakref.finalize(self, thread.stop)
        thread.wake()

    def close(self) -> None:
        """Close the connections."""
        if self._thread is not None:
            self._ending()
            self._thread = self._follower = None
        self._asker.close()

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


class AsyncThresholds(BaseReader):
    """`Thresholds` for asyncio: the same arguments and answers, within one event loop.

    async with AsyncThresholds("redis://localhost:6379") as thresholds:
        answer = await thresholds.get(workflow_type="refund", domain="retail")
    """

    _connect = staticmethod(redis.asyncio.Redis.from_url)
    _retry = AsyncRetry

    def __init__(self, redis_url: str, **options: Any) -> None:
        """Take the arguments of `Thresholds`; connect on the first `get`."""
        super().__init__(redis_url, **options)
        self._asker: TaskAsker | None = None
        self._task: asyncio.Task[None] | None = None

    def _here(self) -> TaskAsker:
        """Return what asks in this event loop. Connections of an earlier loop are forgotten."""
        if self._asker is None or self._asker.loop is not asyncio.get_running_loop():
            self._asker = TaskAsker(self._connecting()(), **self._asking)
            self._task = self._follower = None
        return self._asker

    async def get(
        self, context: Context | None = None, /, *, tool: str | None = None, **fields: object
    ) -> Threshold:
        """Return the thresholds of a context; see `Thresholds.get`."""
        if fields or type(context) is not dict:
            context = self._given(context, fields)
        if not self._known.issuperset(context):
            tool = self._tool(context, tool)
        given = context
        known = self._hit(given, tool)
        if known is None:
            asked = self._ask(given, tool)
            known = await self._learned(asked) if isinstance(asked, CacheQuery) else asked
        if known.version is not None:
            return known
        asked = self._ask_default(given)
        default = await self._learned(asked) if isinstance(asked, CacheQuery) else asked
        return known.over(default)

    async def _learned(self, asked: CacheQuery) -> Threshold:
        """Return what Redis says; the last known where it does not answer."""
        return self._told(asked, await self._here().ask(asked))

    async def mode(
        self, tenant: str = "default", agent_id: str | None = None, **unknown: object
    ) -> Mode:
        """Return whether guesses may be acted on; see `Thresholds.mode`."""
        if unknown:
            self._refuse_of_mode(unknown)
        asked = self._ask_mode(tenant, agent_id)
        if not isinstance(asked, ModeQuery):
            return asked
        return self._mode_told(asked, await self._here().ask(asked))

    def _follow(self) -> None:
        if self._task is None or self._task.done():
            self._follower = self._new_follower()
            self._task = asyncio.create_task(self._follower.run())
        if self._follower is not None:
            self._follower.wake()

    async def close(self) -> None:
        """Close the connections."""
        asker, self._asker = self._asker, None
        task, self._task, self._follower = self._task, None, None
        if asker is None or asker.loop is not asyncio.get_running_loop():
            return  # nothing was asked in this loop; what is of another one ended with it
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_S)
        await asker.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_readers: weakref.WeakSet[Thresholds] = weakref.WeakSet()


def _after_fork() -> None:
    for reader in list(_readers):
        reader._after_fork()


os.register_at_fork(after_in_child=_after_fork)
