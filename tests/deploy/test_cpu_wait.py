"""How long a process has waited for a processor, as the kernel counts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.cpu_wait import cpu_wait_s
from tests.patience import until

SPIN = "while True: pass"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not count")
def test_processes_that_share_a_processor_wait_for_it() -> None:
    processor = min(os.sched_getaffinity(0))
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(2)]
    try:
        for process in spinning:
            os.sched_setaffinity(process.pid, {processor})
        until(lambda: all(cpu_wait_s(process.pid) > 0.05 for process in spinning))
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def test_the_thread_that_waited_longest_counts(tmp_path: Path) -> None:
    for thread, text in {
        "1": "5 1000000000 1",
        "2": "5 2500000000 1",
        "3": "no number",
        "4": "1",
    }.items():
        (tmp_path / "7" / "task" / thread).mkdir(parents=True)
        (tmp_path / "7" / "task" / thread / "schedstat").write_text(text + "\n")
    (tmp_path / "7" / "task" / "5").mkdir()
    assert cpu_wait_s(7, tmp_path) == 2.5


def test_a_process_that_ended_waited_for_nothing(tmp_path: Path) -> None:
    assert cpu_wait_s(7, tmp_path) == 0.0
