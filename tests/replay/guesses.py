"""Guesses, some of which could not be started, and the events that log them."""

from __future__ import annotations

from random import Random
from typing import Any

from headstart.events.schema import new_id

BEGIN = 1_750_000_000_000


def guess(number: int, draw: Random) -> dict[str, Any]:
    """Return what a guess is, without how it is logged."""
    confidence = draw.random()
    return {
        "number": number,
        "confidence": confidence,
        "correct": draw.random() < confidence,
        "why": draw.choice(["tool", "mode", "budget"]) if number % 3 == 0 else None,
        "whole": draw.random() < 0.5,
    }


def events_of(each: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a guess: one with all fields, or a start and its completion."""
    number = each["number"]
    base = {
        "tenant": "acme", "workflow_type": "refund", "workflow_id": f"w{number // 3}",
        "task_id": str(number), "timestamp": BEGIN + 60_000 * number,
    }  # fmt: skip
    prediction = {"tool_id": "search", "speculated": False, "not_startable": each["why"]}
    result = {"gain_ms": 400.0, "cost_ms": 600.0}
    done = {**base, "id": new_id(), "event_type": "task_complete"}
    judged = {"was_correct": each["correct"], "speculated": False}
    if each["whole"]:
        data = {"prediction": {**prediction, **judged}, "result": result}
        return [{**done, "confidence": each["confidence"], "data": data}]
    start = {**base, "id": new_id(), "event_type": "speculation_start",
             "confidence": each["confidence"], "data": {"prediction": prediction}}  # fmt: skip
    return [start, {**done, "data": {"prediction": judged, "result": result}}]
