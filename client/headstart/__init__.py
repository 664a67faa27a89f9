"""Headstart client: emit episodic events, read learned speculation thresholds.

with headstart.workflow(workflow_type="refund", tenant="acme", user_id="u7") as run:
    run.emit(headstart.task_complete(task_id="1", tool_id="search", success=True))
threshold = headstart.Thresholds("redis://127.0.0.1:6379/0").get(workflow_type="refund")
"""

from typing import TYPE_CHECKING, Any

from headstart.events import Event, InvalidEvent
from headstart.kinds import (
    ail_decision,
    hil_decision,
    speculation_start,
    task_complete,
    user_feedback,
    workflow_complete,
)
from headstart.validation import validate

if TYPE_CHECKING:
    from headstart.directory import SpoolUnavailable
    from headstart.emitter import BufferFull, Emitter, NotDelivered
    from headstart.experiments import arm_of
    from headstart.scope import Workflow, workflow
    from headstart.scrubbing import Scrubbing
    from headstart.secrets import Pattern
    from headstart.speculation import (
        AsyncSpeculator,
        Attempt,
        AttemptResolved,
        Choice,
        Resolution,
        Speculator,
    )
    from headstart.spool import SpoolSettings
    from headstart.thresholds import AsyncThresholds, Threshold, Thresholds

__all__ = [
    "AsyncSpeculator",
    "AsyncThresholds",
    "Attempt",
    "AttemptResolved",
    "BufferFull",
    "Choice",
    "Emitter",
    "Event",
    "InvalidEvent",
    "NotDelivered",
    "Pattern",
    "Resolution",
    "Scrubbing",
    "Speculator",
    "SpoolSettings",
    "SpoolUnavailable",
    "Threshold",
    "Thresholds",
    "Workflow",
    "ail_decision",
    "arm_of",
    "hil_decision",
    "speculation_start",
    "task_complete",
    "user_feedback",
    "validate",
    "workflow",
    "workflow_complete",
]

_LATER = {
    **dict.fromkeys(("BufferFull", "Emitter", "NotDelivered"), "emitter"),
    **dict.fromkeys(("Workflow", "workflow"), "scope"),
    "Pattern": "secrets",
    "arm_of": "experiments",
    "Scrubbing": "scrubbing",
    "SpoolSettings": "spool",
    "SpoolUnavailable": "directory",
    **dict.fromkeys(("AsyncThresholds", "Threshold", "Thresholds"), "thresholds"),
    **dict.fromkeys(("AsyncSpeculator", "Attempt", "AttemptResolved"), "speculation"),
    **dict.fromkeys(("Choice", "Resolution", "Speculator"), "speculation"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: who only emits needs no Redis client, a command's help neither."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"headstart.{_LATER[name]}"), name)
    return found
