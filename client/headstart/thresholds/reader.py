"""The readers of thresholds that executors import.

A cache in the process answers, kept up to date by announcements of Redis; a miss is one round trip
for the whole fallback chain of a context. A reader never raises for an error of Redis: it returns
the last known thresholds, marked as stale, or the conservative default.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import Any, Final, Self

from redis.asyncio.retry import Retry as AsyncRetry
from redis.retry import Retry

from headstart.connections.redis_clients import connect, connect_async
from headstart.connections.redis_nodes import AsyncNodes, Nodes
from headstart.connections.redis_urls import is_cluster_url
from headstart.thresholds.async_queries import AsyncQueryClient
from headstart.thresholds.base_reader import BaseReader, Context, redis_address
from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.modes import Mode, ModeQuery
from headstart.thresholds.outages import PAUSE_S
from headstart.thresholds.queries import QueryClient
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
"""Most seconds that `close` waits for the subscriber to end."""


class Thresholds(BaseReader):
    """Reads thresholds and modes. Thread-safe, and usable after a fork.

    Never raises for an error of Redis: it returns the last known values, marked as stale, or the
    conservative default. Connects on the first `get`.

        with Thresholds("redis://localhost:6379") as thresholds:
            answer = thresholds.get(workflow_type="refund", domain="retail", user_id="u7")
            start_early = confidence >= answer.speculate

    Args:
        redis_url: `redis://`, `rediss://` or `unix://` URL, `redis+sentinel://` or
            `redis+cluster://` (see `headstart.connections.redis_urls`).
        levels: Keys that refine a workflow type, coarse to fine; the same as in the service
            (default `("domain", "user_id")`).
        timeout_s: Seconds that each wait for Redis may take (default 0.05).
        staleness_s: Seconds after which an answer that Redis has not confirmed is queried again
            (default 1.0; 0 queries always, and subscribes to nothing).
        mirror_limit: Number of contexts cached, about 1.5 KB each (default 10,000).
        clock: Monotonic clock in seconds.

    Raises:
        InvalidArgument: An argument is unknown, or its value cannot be used.
    """

    _connect = staticmethod(connect)
    _nodes = Nodes
    _retry = Retry

    def __init__(self, redis_url: str, **options: Any) -> None:
        super().__init__(redis_url, **options)
        self._start()
        _readers.add(self)

    def _start(self) -> None:
        one = {} if is_cluster_url(self._url) else {"single_connection_client": True}
        self._query_client = QueryClient(
            self._client_factory(**one), server_of=self._server_of, **self._asking
        )
        self._starting = threading.Lock()
        self._thread: SubscriberThread | None = None

    def get(
        self, context: Context | None = None, /, *, tool: str | None = None, **fields: object
    ) -> Threshold:
        """Return the thresholds of a context, given as a mapping, as keywords, or both.

        Args:
            context: Keys such as `workflow_type` (required), `tenant` ("default" unless given) and
                the levels.
            tool: The tool whose overrides apply; also `tool_id` if that is not a level.
            **fields: More keys of the context.

        Raises:
            InvalidArgument: `workflow_type` is missing, an id is not a string, or a name is a
                misspelling of the tenant, the tool, an id or a level.
        """
        if fields or type(context) is not dict:
            context = self._given(context, fields)
        known = self._lookup(context, tool, self._known)
        if known is None:
            if not self._known.issuperset(context):
                tool = self._tool(context, tool)
            asked = self._lookup(context, tool) or self._ask(context, tool)
            known = self._fetch(asked) if isinstance(asked, CacheQuery) else asked
        if known.version is not None:
            return known
        asked = self._ask_default(context)
        default = self._fetch(asked) if isinstance(asked, CacheQuery) else asked
        return known.with_default(default)

    def _fetch(self, query: CacheQuery) -> Threshold:
        """Query Redis; return the last known answer if it does not respond."""
        return self._read_reply(query, self._query_client.ask(query))

    def mode(self, tenant: str = "default", agent_id: str | None = None, **unknown: object) -> Mode:
        """Return "off", "observe" or "act": the most restrictive mode that applies.

        Of HEADSTART_MODE, the global mode, the tenant's, and that of its agent `agent_id`. Raises
        `InvalidArgument` for any other keyword.
        """
        if unknown:
            self._refuse_mode_keywords(unknown)
        asked = self._ask_mode(tenant, agent_id)
        if not isinstance(asked, ModeQuery):
            return asked
        return self._read_mode_reply(asked, self._query_client.ask(asked))

    def _follow(self) -> None:
        with self._starting:
            thread = self._thread
            if thread is None:
                self._subscriber = self._new_subscriber()
                thread = self._thread = SubscriberThread(self._subscriber)
                thread.start()
                self._stop_thread = weakref.finalize(self, thread.stop)
        thread.wake()

    def close(self) -> None:
        """Close the connections."""
        if self._thread is not None:
            self._stop_thread()
            self._thread = self._subscriber = None
        self._query_client.close()

    def _after_fork(self) -> None:
        """Start over in a forked child: the thread is gone, and connections are the parent's."""
        if self._thread is not None:
            self._stop_thread.detach()
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

    _connect = staticmethod(connect_async)
    _nodes = AsyncNodes
    _retry = AsyncRetry

    def __init__(self, redis_url: str, **options: Any) -> None:
        super().__init__(redis_url, **options)
        self._query_client: AsyncQueryClient | None = None
        self._task: asyncio.Task[None] | None = None

    def _current_client(self) -> AsyncQueryClient:
        """Return the client of this event loop; one of an earlier loop is dropped."""
        if self._query_client is None or self._query_client.loop is not asyncio.get_running_loop():
            self._query_client = AsyncQueryClient(self._client_factory()(), **self._asking)
            self._task = self._subscriber = None
        return self._query_client

    async def get(
        self, context: Context | None = None, /, *, tool: str | None = None, **fields: object
    ) -> Threshold:
        """Return the thresholds of a context; see `Thresholds.get`."""
        if fields or type(context) is not dict:
            context = self._given(context, fields)
        known = self._lookup(context, tool, self._known)
        if known is None:
            if not self._known.issuperset(context):
                tool = self._tool(context, tool)
            asked = self._lookup(context, tool) or self._ask(context, tool)
            known = await self._fetch(asked) if isinstance(asked, CacheQuery) else asked
        if known.version is not None:
            return known
        asked = self._ask_default(context)
        default = await self._fetch(asked) if isinstance(asked, CacheQuery) else asked
        return known.with_default(default)

    async def _fetch(self, query: CacheQuery) -> Threshold:
        """Query Redis; return the last known answer if it does not respond."""
        return self._read_reply(query, await self._current_client().ask(query))

    async def mode(
        self, tenant: str = "default", agent_id: str | None = None, **unknown: object
    ) -> Mode:
        """Return "off", "observe" or "act"; see `Thresholds.mode`."""
        if unknown:
            self._refuse_mode_keywords(unknown)
        asked = self._ask_mode(tenant, agent_id)
        if not isinstance(asked, ModeQuery):
            return asked
        return self._read_mode_reply(asked, await self._current_client().ask(asked))

    def _follow(self) -> None:
        if self._task is None or self._task.done():
            self._subscriber = self._new_subscriber()
            self._task = asyncio.create_task(self._subscriber.run())
        if self._subscriber is not None:
            self._subscriber.wake()

    async def close(self) -> None:
        """Close the connections."""
        client, self._query_client = self._query_client, None
        task, self._task, self._subscriber = self._task, None, None
        if client is None or client.loop is not asyncio.get_running_loop():
            return  # no query was sent in this loop
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_S)
        await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_readers: weakref.WeakSet[Thresholds] = weakref.WeakSet()


def _after_fork() -> None:
    for reader in list(_readers):
        reader._after_fork()


os.register_at_fork(after_in_child=_after_fork)
