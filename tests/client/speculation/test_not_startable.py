"""The log has why no confidence would have been enough to start a guess."""

from __future__ import annotations

from typing import Any

import pytest

from headstart import speculation_start
from headstart.speculation.speculator import AsyncSpeculator
from tests.client.speculation.turns import Log, found, resolve, speculate, turn


def logged(confidence: float = 0.9, cost: float = 10.0, **options: Any) -> dict[str, Any]:
    """Return the prediction that is logged of a guess."""
    kept: list[dict[str, Any]] = []

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, found, confidence, gain=400.0, cost=cost) as tried:
            await resolve(tried, "other")
        kept.extend(log.of("speculation_start"))

    speculate(test, **options)
    prediction: dict[str, Any] = kept[0]["data"]["prediction"]
    return prediction


@pytest.mark.parametrize("confidence", [0.1, 0.6, 0.99])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"allowed": set()}, "tool"),
        ({"dangerous": {"search"}}, "tool"),
        ({"mode": b"observe"}, "mode"),
        ({"mode": b"observe", "allowed": set()}, "mode"),
        ({"wasted_per_minute": 5.0}, "budget"),
        ({"allowed": set(), "exploration": 1.0}, "tool"),
    ],
)
def test_the_reason_is_reported_at_any_confidence(
    confidence: float, options: dict[str, Any], why: str
) -> None:
    prediction = logged(confidence, **options)
    assert prediction["not_startable"] == why
    assert not prediction["speculated"]


@pytest.mark.parametrize("confidence", [0.1, 0.6, 0.99])
def test_no_reason_is_reported_where_the_threshold_decides(confidence: float) -> None:
    assert "not_startable" not in logged(confidence)


def test_a_budget_spent_between_decision_and_start_is_reported() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        tried = turn(speculator, found, 0.99, gain=400.0, cost=10.0)
        speculator.reserve = lambda _guess: None  # type: ignore[method-assign]
        async with tried:
            await resolve(tried, "other")
        (start,) = log.of("speculation_start")
        assert start["data"]["prediction"]["not_startable"] == "budget"

    speculate(test)


def test_executors_that_log_themselves_can_say_it() -> None:
    place = {"workflow_type": "refund", "workflow_id": "w1", "task_id": "1"}
    event = speculation_start(
        guess="pay", confidence=0.9, speculated=False, not_startable="tool", **place
    )
    assert event["data"]["prediction"]["not_startable"] == "tool"
