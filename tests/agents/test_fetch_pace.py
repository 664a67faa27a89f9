"""An idle consumer fetches less often, and at its usual pace once there is something to fetch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agents.consumer import faust_transport
from agents.consumer.faust_transport import (
    FETCH_WAIT_MS,
    IDLE_AFTER_S,
    IDLE_FETCH_WAIT_MS,
    ConsumerThread,
)


class Paced(ConsumerThread):
    """Without a thread and a consumer."""

    def __init__(self, gather_ms: int) -> None:
        self.app = SimpleNamespace(gather_ms=gather_ms)


@pytest.mark.parametrize(
    ("gather_ms", "idle_ms"), [(FETCH_WAIT_MS, IDLE_FETCH_WAIT_MS), (200, 200)]
)
def test_the_wait_of_a_fetch(monkeypatch: pytest.MonkeyPatch, gather_ms: int, idle_ms: int) -> None:
    clock = [1_000.0]
    monkeypatch.setattr(faust_transport, "monotonic", lambda: clock[0])
    thread, fetcher, waits = Paced(gather_ms), SimpleNamespace(), list[Any]()
    for passed_s, found in [(0, True), (IDLE_AFTER_S, False), (0.1, False), (1, True)]:
        clock[0] += passed_s
        thread._pace(fetcher, found)
        waits.append(fetcher._fetch_max_wait_ms)
    assert waits == [gather_ms, gather_ms, idle_ms, gather_ms]
