"""Queries Redis for threads, on a few connections: concurrent identical queries are sent once.

`headstart.thresholds.async_queries` does it for tasks. Both bound the time in the queue, and a
timeout starts when a query is sent: a queue in this process is never taken for a slow Redis.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import redis

from headstart.connections.redis_nodes import Nodes, queue_commands
from headstart.connections.redis_slots import SlotMap
from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.modes import ModeQuery

CONNECTIONS: Final = 8
"""Most connections of the threads of one reader."""
WAIT_S: Final = 5.0
"""Least bound of the seconds that a query waits in the queue; see `queue_timeout_s`."""
Query = CacheQuery | ModeQuery
ServerOf = Callable[[Query], Hashable]


def queue_timeout_s(timeout_s: float) -> float:
    """Return the seconds that a query may wait in the queue, if Redis may take `timeout_s`."""
    return max(WAIT_S, 2.0 * timeout_s)


class Reply(NamedTuple):
    """The result of a query, which may be an identical one of another caller.

    `values`: the response to what was sent at `asked_at` (the reader's clock). None if there was
    none because of `error`; without either the query was not sent.
    """

    query: Query
    values: Any = None
    asked_at: float = 0.0
    error: Exception | None = None


def server_names(slots: SlotMap | None) -> ServerOf:
    """Return a function that names the server of a query: of a cluster the master, else None.

    One master that is away must not keep others from being queried, least of all that of the modes.
    It holds no reference to a reader.
    """
    return lambda query: None if slots is None else slots.master(query.key)


class PendingQuery:
    """A query that waits or was sent. `asked_at`: None until it is sent."""

    def __init__(self, query: Query) -> None:
        self.query, self.reply = query, Reply(query)
        self.asked_at: float | None = None

    def is_fresh(self, now: float, staleness_s: float) -> bool:
        """Return whether its response is fresh enough for an identical query made now."""
        return self.asked_at is None or 0.0 <= now - self.asked_at < staleness_s


def key_of(query: Query) -> Hashable:
    """Return a key that identical queries share."""
    of_mode = isinstance(query, ModeQuery)
    return of_mode, query.owner if of_mode else query.context  # type: ignore[union-attr]


def read_reply(query: Query, answers: Sequence[Any], asked_at: float) -> Reply:
    """Return the reply in the responses to a query's commands, any of which may be an error.

    The values of a mode are kept even if some are errors.
    """
    error = next((each for each in answers if isinstance(each, Exception)), None)
    if isinstance(query, ModeQuery):
        return Reply(query, answers, asked_at, error)
    return Reply(query, None if error else answers[0], asked_at, error)


class _Pending(PendingQuery):
    """A query of a thread. `done`: `reply` is set."""

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self.done, self.thread = threading.Event(), threading.get_ident()


class QueryClient:
    """Queries for threads. `connect` returns a redis-py client with one connection, or `Nodes`."""

    def __init__(
        self,
        connect: Callable[[], Any],
        *,
        clock: Callable[[], float],
        staleness_s: float,
        timeout_s: float,
        server_of: ServerOf,
    ) -> None:
        self._server_of = server_of
        self._connect, self._clock, self._staleness_s = connect, clock, staleness_s
        self._wait_s = queue_timeout_s(timeout_s)
        self._lock = threading.RLock()  # a signal handler may query meanwhile
        self._pending: dict[Hashable, _Pending] = {}
        self._slots = threading.Semaphore(CONNECTIONS)
        self._clients: list[Any] = []
        self._idle: list[Any] = []
        self._failures = Counter[Hashable]()

    def ask(self, query: Query) -> Reply:
        """Send a query, or wait for the reply to an identical one of another thread."""
        key, mine = key_of(query), _Pending(query)
        try:
            other = self._join(key, mine)
            if other is None:
                mine.reply = self._send_in_turn(mine)
                return mine.reply
        finally:  # also if a signal handler raises: no thread may wait for a query that ended
            with self._lock:
                if self._pending.get(key) is mine:
                    del self._pending[key]
            mine.done.set()
        other.done.wait(2.0 * self._wait_s)
        return other.reply

    def _join(self, key: Hashable, mine: _Pending) -> _Pending | None:
        """Return an identical query of another thread; else None, and register `mine`."""
        with self._lock:
            other = self._pending.get(key)
            if (
                other is not None
                and other.thread != mine.thread
                and other.is_fresh(self._clock(), self._staleness_s)
            ):
                return other
            self._pending[key] = mine
            return None

    def _send_in_turn(self, pending: _Pending) -> Reply:
        server = self._server_of(pending.query)
        failures = self._failures[server]
        if not self._slots.acquire(timeout=self._wait_s):
            return pending.reply
        try:
            if failures != self._failures[server]:  # a query failed while this one waited
                return pending.reply
            return self._send(pending)
        finally:
            self._slots.release()

    def _send(self, pending: _Pending) -> Reply:
        query = pending.query
        asked_at = pending.asked_at = self._clock()
        try:
            client = self._client()
            try:
                if isinstance(client, Nodes):
                    answers = _answers_of(client, query)
                elif isinstance(query, ModeQuery):
                    pipeline = queue_commands(client.pipeline(transaction=False), query.commands)
                    answers = pipeline.execute(raise_on_error=False)
                else:  # a pipeline would cost a tenth of the round trip more
                    answers = [client.hmget(query.key, query.fields)]
            finally:
                self._idle.append(client)
        except Exception as error:
            if not isinstance(error, redis.ResponseError):
                self._failures[self._server_of(query)] += 1
            return Reply(query, None, asked_at, error)
        return read_reply(query, answers, asked_at)

    def _client(self) -> Any:
        """Return the most recently used idle connection, else a new one, so that few are open."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        client = self._connect()
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close all connections; later queries open new ones."""
        clients, self._clients, self._idle = self._clients, [], []
        for client in clients:
            client.close()


def _answers_of(nodes: Nodes, query: Query) -> list[Any]:
    """Return the responses to a query; raise if a node does not respond, as one server would."""
    answers = nodes.answers(query.commands)
    for each in answers:
        if isinstance(each, Exception) and not isinstance(each, redis.ResponseError):
            raise each
    return answers
