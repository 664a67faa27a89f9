"""Asks Redis what a reader's mirrors do not hold: each question once, however many ask it.

Here is how threads ask, on a few connections; how tasks ask, `headstart.thresholds.async_queries`
says. Both wait their turn within bounds, and a timeout counts from when a question is sent: a queue
in this process is never taken for a slow Redis.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import redis

from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.modes import ModeQuery

CONNECTIONS: Final = 8
"""Most connections on which the threads of one reader ask at the same time."""
WAIT_S: Final = 5.0
"""Least bound on the seconds that a question waits for its turn; see `turn_s`."""
Asked = CacheQuery | ModeQuery


def turn_s(timeout_s: float) -> float:
    """Return how long a question may wait for its turn, where Redis may take `timeout_s`."""
    return max(WAIT_S, 2.0 * timeout_s)


class Reply(NamedTuple):
    """What became of a question, which may be one that another caller had asked before.

    `values`: what Redis holds, as of `asked_at` (the reader's clock). None where it gave no answer,
    for the reason `error`; without either the question was not sent.
    """

    question: Asked
    values: Any = None
    asked_at: float = 0.0
    error: Exception | None = None


class Flight:
    """A question that waits or is under way. `asked_at`: None until it is sent."""

    def __init__(self, question: Asked) -> None:
        self.question, self.reply = question, Reply(question)
        self.asked_at: float | None = None

    def answers(self, now: float, staleness_s: float) -> bool:
        """Return whether its answer is fresh enough for a question that is asked now."""
        return self.asked_at is None or 0.0 <= now - self.asked_at < staleness_s


def key_of(question: Asked) -> Hashable:
    """Return what is the same for questions with the same answer."""
    of_mode = isinstance(question, ModeQuery)
    return of_mode, question.owner if of_mode else question.context  # type: ignore[union-attr]


def read_reply(question: Asked, answers: Sequence[Any], asked_at: float) -> Reply:
    """Return the reply in the answers to a question's commands, any of which may be an error.

    The values of a mode are there also where some are errors, as Redis gave them.
    """
    error = next((each for each in answers if isinstance(each, Exception)), None)
    if isinstance(question, ModeQuery):
        return Reply(question, answers, asked_at, error)
    return Reply(question, None if error else answers[0], asked_at, error)


class _Flight(Flight):
    """`done`: that `reply` is there."""

    def __init__(self, question: Asked) -> None:
        super().__init__(question)
        self.done, self.thread = threading.Event(), threading.get_ident()


class ThreadAsker:
    """Asks for threads. `connect` returns a client of redis-py with one connection."""

    def __init__(
        self,
        connect: Callable[[], Any],
        *,
        clock: Callable[[], float],
        staleness_s: float,
        timeout_s: float,
    ) -> None:
        self._connect, self._clock, self._staleness_s = connect, clock, staleness_s
        self._wait_s = turn_s(timeout_s)
        self._lock = threading.RLock()  # a signal handler may ask in the middle of it
        self._flights: dict[Hashable, _Flight] = {}
        self._slots = threading.Semaphore(CONNECTIONS)
        self._clients: list[Any] = []
        self._idle: list[Any] = []
        self._failures = 0

    def ask(self, question: Asked) -> Reply:
        """Ask, or wait for the answer to the same question that another thread is asking."""
        key, mine = key_of(question), _Flight(question)
        try:
            other = self._join(key, mine)
            if other is None:
                mine.reply = self._in_turn(mine)
                return mine.reply
        finally:  # also where a signal handler raises: nobody must wait for what has ended
            with self._lock:
                if self._flights.get(key) is mine:
                    del self._flights[key]
            mine.done.set()
        other.done.wait(2.0 * self._wait_s)
        return other.reply

    def _join(self, key: Hashable, mine: _Flight) -> _Flight | None:
        """Return the same question of another thread; None, and `mine` is the one to be joined."""
        with self._lock:
            other = self._flights.get(key)
            if (
                other is not None
                and other.thread != mine.thread
                and other.answers(self._clock(), self._staleness_s)
            ):
                return other
            self._flights[key] = mine
            return None

    def _in_turn(self, flight: _Flight) -> Reply:
        failures = self._failures
        if not self._slots.acquire(timeout=self._wait_s):
            return flight.reply
        try:
            if failures != self._failures:  # Redis did not answer another one meanwhile
                return flight.reply
            return self._sent(flight)
        finally:
            self._slots.release()

    def _sent(self, flight: _Flight) -> Reply:
        question = flight.question
        asked_at = flight.asked_at = self._clock()
        try:
            client = self._client()
            try:
                if isinstance(question, ModeQuery):
                    pipeline = client.pipeline(transaction=False)
                    answers = question.through(pipeline).execute(raise_on_error=False)
                else:  # without a pipeline, which costs a tenth of the round trip
                    answers = [client.hmget(question.key, question.fields)]
            finally:
                self._idle.append(client)
        except Exception as error:
            if not isinstance(error, redis.ResponseError):
                self._failures += 1
            return Reply(question, None, asked_at, error)
        return read_reply(question, answers, asked_at)

    def _client(self) -> Any:
        """Return the connection used last, so that few are open; a new one where all are in use."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        client = self._connect()
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close all connections; what is asked after that opens them anew."""
        clients, self._clients, self._idle = self._clients, [], []
        for client in clients:
            client.close()
