"""Runs jobs in several processes, each of which is prepared once. Results come as they are ready.

Not here: what a job is. Results do not depend on how many processes there are.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
Prepare = Callable[[], None]


def cores() -> int:
    """Return how many processes can run at once."""
    return len(os.sched_getaffinity(0))


class JobPool:
    """A pool of processes; with one process, jobs run in this one. A context manager.

    `prepare(*given)` is called once in each process before its first job. Raises what a job
    raises, and `RuntimeError` if a process was ended from outside.
    """

    def __init__(self, processes: int, prepare: Callable[..., None], given: Sequence[Any]) -> None:
        self._prepare, self._given = prepare, given
        self._prepared = False
        self._pool: ProcessPoolExecutor | None = None
        if processes > 1:
            self._pool = ProcessPoolExecutor(
                processes,
                mp_context=get_context("spawn"),
                initializer=_begin,
                initargs=(prepare, given),
            )

    def __enter__(self) -> JobPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is None:
            return
        if kind is not None:
            for process in list((self._pool._processes or {}).values()):
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run(
        self, work: Callable[[Job], Result], jobs: Sequence[Job]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the place of each job and its result, in the order in which they end."""
        if self._pool is None:
            if not self._prepared:
                self._prepare(*self._given)
                self._prepared = True
            for place, job in enumerate(jobs):
                yield place, work(job)
            return
        running = {self._pool.submit(work, job): place for place, job in enumerate(jobs)}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a process of the evaluation was ended from outside; run it again"
            ) from error


def _begin(prepare: Callable[..., None], given: Sequence[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    prepare(*given)
