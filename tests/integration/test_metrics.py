"""What `thresholds show --json` has for a context beside its threshold."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]


def test_the_metrics_of_the_level_that_answers(
    system: System,
    headstart: Any,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    stored: Any,
    tenant: str,
) -> None:
    at = system.addresses
    right = {"was_correct": True, "speculated": True}
    wrong = {"was_correct": False, "speculated": True}
    events = [
        judged(tenant, data={"prediction": prediction, "result": {"gain_ms": 300, "cost_ms": 50}})
        for prediction in (right, right, right, wrong)
    ]
    verdict = judged(tenant, event_type="user_feedback", data={"accepted": True})
    assert headstart("emit", write_events([*events, verdict]), "--kafka", at.kafka).returncode == 0
    path = "workflow_type=refund"
    stored.until(lambda: stored.served("refund").get(path, {}).get("counts", [0])[-1] == 1)
    shown = headstart(
        "thresholds", "show", "--workflow-type", "refund", "--tenant", tenant,
        "--redis", at.redis, "--json",
    )  # fmt: skip
    output = json.loads(shown.stdout)
    assert (output["gain_ms"], output["cost_ms"], output["outcomes"]) == (300.0, 50.0, 4)
    metrics = output["metrics"]
    assert (metrics["attempts"], metrics["hits"], metrics["misses"]) == (4, 3, 1)
    assert (metrics["saved_ms"], metrics["wasted_ms"]) == (900.0, 50.0)
    assert metrics["modes"]["speculative"] == {"outcomes": 4.0, "fp": 0.25, "fn": None}
    assert (metrics["feedback"], metrics["feedback_accepted"]) == (1, 1)
