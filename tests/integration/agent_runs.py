"""Runs of an agent as events of now, for tests that emit them."""

from __future__ import annotations

import time
from typing import Any

from headstart.events.schema import new_id

Event = dict[str, Any]


def agent_run(tenant: str, user: str | None, name: str, query: str, **more: Any) -> list[Event]:
    """A run of three events; `more`: fields of all."""
    at = time.time_ns() // 1_000_000
    common = {
        "tenant": tenant, "workflow_type": "refund", "workflow_id": name, "timestamp": at, **more,
    }  # fmt: skip
    if user is not None:
        common["user_id"] = user
    said = {"context": {"domain": "retail"}, "query": query, "outcome": "success"}
    guess = {"was_correct": True, "speculated": True}
    return [
        common | {"id": new_id(), "event_type": "task_complete", "tool_id": "find",
                  "task_id": str(n), "confidence": 0.9,
                  "data": {"context": {"domain": "retail"}, "prediction": guess,
                           "arguments": {"of": query}}}
        for n in range(2)
    ] + [common | {"id": new_id(), "event_type": "workflow_complete", "data": said}]  # fmt: skip
