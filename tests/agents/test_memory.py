"""What a worker has freed goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREES_BETWEEN_WHAT_STAYS = """
import sys
from agents.memory import give_back, keep_one_heap

def resident_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))

if sys.argv[1] == "ruled":
    keep_one_heap()
del [bytes(30_000_000)][:]  # glibc learns that blocks so large are freed, and keeps them from here
before = resident_mb()
large, stays = [], []
for _ in range(200):
    large.append(bytes([1]) * 1_000_000)
    stays.append(bytes([2]) * 1_000)
large.clear()
if sys.argv[1] == "ruled":
    give_back()
print(resident_mb() - before)
"""


def kept_mb(rules: str) -> float:
    argv = [sys.executable, "-c", FREES_BETWEEN_WHAT_STAYS, rules]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the rules are glibc's")
def test_memory_that_was_freed_between_what_stays_goes_back() -> None:
    assert kept_mb("malloc's own") > 150
    assert kept_mb("ruled") < 20
