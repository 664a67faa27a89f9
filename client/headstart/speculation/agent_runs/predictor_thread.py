"""Runs predictors in one daemon thread of the process, so that they do not delay an event loop."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

STUCK_S: Final = 5.0
"""Seconds after which a job counts as stuck, and another thread does the other jobs."""

_LOG = logging.getLogger(__name__)


class Job(NamedTuple):
    """`work` is done unless its owner was `dropped` meanwhile; a failure drops the owner."""

    work: Callable[[], None]
    dropped: Callable[[], bool]
    drop: Callable[[str], None]


class PredictorThread:
    """Does jobs in their order. The thread is started by the first job, and again after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._current: tuple[Job, float] | None = None

    def submit(self, job: Job) -> None:
        """Do a job after those submitted before."""
        with self._lock:
            self._replace_stuck()
            if self._thread is None:  # it ends only when it is replaced
                thread = threading.Thread(
                    target=self._work, args=(self._jobs,), name="headstart-predictor", daemon=True
                )
                thread.start()
                self._thread = thread
            self._jobs.put(job)

    def _replace_stuck(self) -> None:
        """Leave a thread whose job does not end; it ends itself once the job has ended."""
        current = self._current
        if current is None or time.monotonic() - current[1] < STUCK_S:
            return
        current[0].drop(f"it has been at work for {STUCK_S:g} s")
        waiting, self._jobs = self._jobs, queue.SimpleQueue()
        self._thread, self._current = None, None
        with suppress(queue.Empty):
            while True:
                self._jobs.put(waiting.get_nowait())

    def _work(self, jobs: queue.SimpleQueue[Job]) -> None:
        while jobs is self._jobs:
            job = jobs.get()
            started = job, time.monotonic()
            self._current = started
            try:
                if not job.dropped():
                    job.work()
            except BaseException as error:
                job.drop(repr(error))
            if self._current is started:
                self._current = None


_shared = PredictorThread()


def shared() -> PredictorThread:
    """Return the thread of this process."""
    return _shared


def _after_fork() -> None:
    global _shared  # noqa: PLW0603 - a thread of the parent may hold its lock
    _shared = PredictorThread()


os.register_at_fork(after_in_child=_after_fork)
