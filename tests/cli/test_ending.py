"""How `up` is asked to end: once it drains, twice it does not; a closed terminal counts, too."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cli.support.stop_signals import Asked

INTERRUPTED_WAITS = """
import signal
from cli.support.stop_signals import SignalFlag
for microseconds in range(1, 400):
    flag = SignalFlag()
    signal.signal(signal.SIGALRM, lambda *_: flag.set())
    signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
    while not flag.wait(1e-6):
        pass
"""
NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_second_signal_stops_at_once(number: signal.Signals) -> None:
    asked = Asked()
    asked.started = True
    assert not asked.once.is_set
    signal.raise_signal(number)
    assert asked.once.is_set
    assert not asked.at_once
    signal.raise_signal(signal.SIGINT)
    assert asked.at_once


def test_a_signal_during_start_interrupts_once() -> None:
    asked = Asked()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # not again, in what cleans up
    assert asked.at_once


def test_nohup_ignores_the_closed_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asked = Asked()
    asked.started = True
    signal.raise_signal(signal.SIGHUP)
    assert not asked.once.is_set


def test_a_signal_at_any_time_of_a_wait_is_taken() -> None:
    command = [sys.executable, "-c", INTERRUPTED_WAITS]
    assert subprocess.run(command, timeout=120, check=False).returncode == 0
