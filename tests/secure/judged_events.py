"""An event with a judged prediction, as the tests of whole systems emit it."""

from __future__ import annotations

import time
from typing import Any

from headstart.events.schema import new_id


def judged(tenant: str) -> dict[str, Any]:
    return {
        "id": new_id(),
        "event_type": "task_complete",
        "tenant": tenant,
        "workflow_type": "refund",
        "workflow_id": "w1",
        "timestamp": time.time_ns() // 1_000_000,
        "confidence": 0.95,
        "data": {"prediction": {"was_correct": True, "speculated": True}},
    }
