"""Headstart client: emit episodic events, read learned speculation thresholds.

with headstart.workflow(type="refund", tenant="acme", user="u7") as run:
    run.emit(headstart.task_complete(task_id="1", tool_id="search", success=True))
threshold = headstart.Thresholds("redis://127.0.0.1:6379/0").get(workflow_type="refund")
"""

from typing import TYPE_CHECKING, Any

from headstart.directory import SpoolUnavailable
from headstart.emitter import BufferFull, Emitter, NotDelivered
from headstart.events import Event, InvalidEvent
from headstart.kinds import (
    ail_decision,
    hil_decision,
    speculation_start,
    task_complete,
    user_feedback,
    workflow_complete,
)
from headstart.scope import Workflow, workflow
from headstart.scrubbing import Scrubbing
from headstart.secrets import Pattern
from headstart.spool import SpoolSettings
from headstart.validation import validate

if TYPE_CHECKING:
    from headstart.thresholds import AsyncThresholds, Threshold, Thresholds

__all__ = [
    "AsyncThresholds",
    "BufferFull",
    "Emitter",
    "Event",
    "InvalidEvent",
    "NotDelivered",
    "Pattern",
    "Scrubbing",
    "SpoolSettings",
    "SpoolUnavailable",
    "Threshold",
    "Thresholds",
    "Workflow",
    "ail_decision",
    "hil_decision",
    "speculation_start",
    "task_complete",
    "user_feedback",
    "validate",
    "workflow",
    "workflow_complete",
]

_READERS = ("AsyncThresholds", "Threshold", "Thresholds")


def __getattr__(name: str) -> Any:
    """Import the reader when it is first asked for: who only emits needs no Redis client."""
    if name not in _READERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headstart import thresholds

    return getattr(thresholds, name)
