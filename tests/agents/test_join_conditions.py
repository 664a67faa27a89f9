"""Which clock keeps a worker out of its group: one that the broker is known to refuse."""

from __future__ import annotations

import asyncio
import time

import pytest

from agents import join_conditions
from agents.join_conditions import ClockAhead, require_time
from topics.catalogue import EVENTS

LIMIT = "message.timestamp.after.max.ms"
HOUR_S = 3_600


def check(monkeypatch: pytest.MonkeyPatch, settings: dict[str, dict[str, str]]) -> None:
    """Require the time of a host whose clock is two hours ahead."""

    async def probe() -> float:
        return time.time() - 2 * HOUR_S

    async def topic_settings(*_: object) -> dict[str, dict[str, str]]:
        return settings

    monkeypatch.setattr(join_conditions, "topic_settings", topic_settings)
    asyncio.run(require_time("broker:9092", "Redis", probe))


def test_a_clock_further_ahead_than_the_broker_takes_keeps_a_worker_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ClockAhead, match="120 minutes ahead of that of Redis"):
        check(monkeypatch, {EVENTS.name: {LIMIT: str(HOUR_S * 1_000)}})


@pytest.mark.parametrize(
    "settings",
    [{}, {EVENTS.name: {}}, {EVENTS.name: {LIMIT: str(9 * HOUR_S * 1_000)}}],
    ids=["may not be read", "does not exist", "is wider"],
)
def test_a_clock_that_no_limit_is_known_to_forbid_does_not(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, dict[str, str]]
) -> None:
    check(monkeypatch, settings)
