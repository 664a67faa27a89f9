"""Speculate, suggest or ask: from what became of suggestions to what a reader decides next."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import headstart as client
from deploy.system import System
from tests.secured import reading

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
SHOWN, REFUSED = 40, 60


def shown(judged: Callable[..., Event], tenant: str, n: int) -> Event:
    """Return a prediction that was suggested, seven of ten right."""
    right = n % 10 < 7
    prediction = {"was_correct": right, "mode": "suggestion", "tool_id": "search"}
    data = {"context": {"domain": "retail"}, "prediction": prediction}
    return judged(tenant, confidence=0.8, data=data)


def test_guesses_that_users_refuse_are_no_longer_suggested(
    system: System, headstart: Any, stored: Any, tenant: str, judged: Callable[..., Event]
) -> None:
    at = system.addresses
    place: dict[str, Any] = {"tenant": tenant, "workflow_type": "refund"}
    with (
        client.Emitter(at.kafka) as emitter,
        client.Thresholds(reading(at), timeout_s=30) as reader,
    ):
        speculator = client.Speculator(reader, allowed={"search"})

        def action(confidence: float) -> str:
            return speculator.decide({**place, "domain": "retail"}, "search", confidence).action

        for n in range(SHOWN):
            emitter.emit(shown(judged, tenant, n))
        path = "workflow_type=refund/domain=retail"
        stored.until(lambda: stored.counted("refund").get(path) == SHOWN)
        stored.until(lambda: action(0.8) == "suggest")
        assert [action(p) for p in (1.0, 0.2)] == ["speculate", "ask"]
        for _ in range(REFUSED):
            emitter.emit(
                client.user_feedback(
                    **place, workflow_id="w1", context={"domain": "retail"}, target_id="x",
                    accepted=False, confidence=0.8,
                )
            )  # fmt: skip
        stored.until(lambda: action(0.8) == "ask")
        stored.until(lambda: stored.served("refund")[path]["counts"][-2] == REFUSED)

    redis = ("--redis", at.redis)
    named = ("--tenant", tenant, "--workflow-type", "refund", "--domain", "retail", *redis)
    output = headstart("thresholds", "show", *named).stdout
    (line,) = [line for line in output.splitlines() if "suggested" in line]
    assert line.split()[1:] == [str(SHOWN), "30.0%", "70.0%"]
    assert f"0 of {REFUSED} verdicts accept" in output
    found = json.loads(headstart("contexts", "--tenant", tenant, *redis, "--json").stdout)
    assert {each["path"]: each["fn_rate"] for each in found["contexts"]}[path] == 0.7
    for each in found["contexts"]:
        assert each["modes"]["suggestion"]["fp"] == pytest.approx(0.3)
