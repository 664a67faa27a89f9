"""A few threads for blocking calls, which do not hold up the end of the process.

The interpreter joins those of `concurrent.futures` at its end: an endpoint that hangs would keep an
agent's process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class DaemonThreads:
    """Runs calls in at most `most` threads, which are started when they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._pending = 0

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Begin a call as soon as a thread is free."""
        future: Future[Any] = Future()
        with self._lock:
            self._pending += 1
            if len(self._threads) < min(self._most, self._pending):
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._waiting.put((future, call))
        return future

    def close(self) -> None:
        """End the threads when they are done, without waiting for them."""
        for _ in self._threads:
            self._waiting.put(None)

    def _run(self) -> None:
        while (taken := self._waiting.get()) is not None:
            future, call = taken
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # the waiting side gets it
                    future.set_exception(error)
            with self._lock:
                self._pending -= 1
            del taken, future, call
