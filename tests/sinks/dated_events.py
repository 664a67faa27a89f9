"""An event of a given time."""

from __future__ import annotations

from typing import Any

from headstart.events.schema import new_id


def event(timestamp: int) -> dict[str, Any]:
    return {
        "id": new_id(),
        "event_type": "task_complete",
        "tenant": "t",
        "workflow_type": "refund",
        "workflow_id": "w1",
        "timestamp": timestamp,
    }
