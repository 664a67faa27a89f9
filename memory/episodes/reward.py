"""The outcome of a run, and its reward, from events only; never from text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from memory.episodes.record import Outcome
from memory.episodes.run_event import RunEvent

REWARDS: Final[Mapping[str, float]] = {
    "success": 1.0,
    "partial": 0.5,
    "failure": 0.0,
    "aborted": 0.0,
}

Told = Sequence[tuple[RunEvent, Mapping[str, Any]]]
"""Events in order, with their content."""


def outcome_of(told: Told) -> Outcome | None:
    """Return how the run ended, by its last `workflow_complete`; None if it has not."""
    for event, content in reversed(told):
        if event.event_type == "workflow_complete":
            said = content.get("outcome")
            if isinstance(said, str) and said in REWARDS:
                return cast("Outcome", said)
            if event.success is not None:
                return "success" if event.success else "failure"
    return None


def reward_of(outcome: Outcome | None, told: Told) -> float | None:
    """Return the mean of the outcome's reward and each user's last feedback, from 0 to 1.

    Feedback counts as its `reward`, cut to 0 to 1, else as 1 if it accepts and 0 if not; of one
    user once, so that repeating it moves nothing. Feedback of the system does not count.
    """
    by_user: dict[str, float] = {}
    for event, content in told:
        if event.event_type == "user_feedback" and content.get("source") != "system":
            value = _feedback(content)
            if value is not None:
                by_user[event.user_id or ""] = value
    values = [by_user[user] for user in sorted(by_user)]
    if outcome is not None:
        values.append(REWARDS[outcome])
    return math.fsum(values) / len(values) if values else None


def _feedback(content: Mapping[str, Any]) -> float | None:
    reward, accepted = content.get("reward"), content.get("accepted")
    if isinstance(reward, int | float) and not isinstance(reward, bool) and not math.isnan(reward):
        return float(min(1, max(0, reward)))
    return float(accepted) if isinstance(accepted, bool) else None
