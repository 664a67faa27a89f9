"""Blocking calls run beside each other, in bounded threads that do not outlive the process."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from memory.retrieval.daemon_threads import DaemonThreads

HANGING = """
import threading
from memory.retrieval.daemon_threads import DaemonThreads
begun = threading.Event()
DaemonThreads(1, "t").submit(lambda: (begun.set(), threading.Event().wait(60)))
begun.wait(30)
"""


def test_calls_share_a_few_threads_and_cancelled_ones_are_not_made() -> None:
    threads, gate, names = DaemonThreads(2, "t"), threading.Event(), []

    def call(number: int) -> Any:
        names.append(threading.current_thread())
        gate.wait(30)
        return number

    made = [threads.submit(lambda n=n: call(n)) for n in range(5)]  # type: ignore[misc]
    assert made[4].cancel()
    gate.set()
    assert [each.result(30) for each in made[:4]] == [0, 1, 2, 3]
    assert len(names) == 4
    assert len(set(names)) <= 2
    threads.close()
    for thread in set(names):
        thread.join(30)
        assert not thread.is_alive()


def test_an_error_is_that_of_the_call() -> None:
    threads = DaemonThreads(1, "t")
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(30)
    assert threads.submit(lambda: 1).result(30) == 1
    threads.close()


def test_a_call_that_hangs_does_not_keep_the_process_alive() -> None:
    assert subprocess.run([sys.executable, "-c", HANGING], timeout=40, check=False).returncode == 0
