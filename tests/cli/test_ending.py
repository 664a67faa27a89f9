"""How `up` is asked to end: once it drains, twice it does not; a closed terminal counts, too."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from cli.support.stop_signals import Asked

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_once_it_ends_and_twice_at_once(number: signal.Signals) -> None:
    asked = Asked()
    asked.started = True
    assert not asked.once.is_set()
    signal.raise_signal(number)
    assert asked.once.is_set()
    assert not asked.at_once
    signal.raise_signal(signal.SIGINT)
    assert asked.at_once


def test_what_is_still_starting_is_interrupted_once() -> None:
    asked = Asked()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # not again, in what cleans up
    assert asked.at_once


def test_under_nohup_the_end_of_the_terminal_is_none() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asked = Asked()
    asked.started = True
    signal.raise_signal(signal.SIGHUP)
    assert not asked.once.is_set()
