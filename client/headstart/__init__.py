"""Headstart client: emit episodic events, read learned speculation thresholds.

with headstart.workflow(workflow_type="refund", tenant="acme", user_id="u7") as run:
    run.emit(headstart.task_complete(task_id="1", tool_id="search", success=True))
threshold = headstart.Thresholds("redis://127.0.0.1:6379/0").get(workflow_type="refund")
"""

from typing import TYPE_CHECKING, Any

from headstart.events.constructors import (
    ail_decision,
    hil_decision,
    speculation_start,
    task_complete,
    user_feedback,
    workflow_complete,
)
from headstart.events.schema import Event, InvalidEvent
from headstart.events.validation import validate

if TYPE_CHECKING:
    from headstart.emitting.emitter import BufferFull, Emitter, NotDelivered
    from headstart.emitting.workflow import Workflow, workflow
    from headstart.experiments import arm_of
    from headstart.scrubbing.patterns import Pattern
    from headstart.scrubbing.scrubber import Scrubbing
    from headstart.speculation.speculator import (
        AsyncSpeculator,
        Attempt,
        AttemptResolved,
        Resolution,
        SpeculationDecision,
        Speculator,
    )
    from headstart.spool.layout import SpoolUnavailable
    from headstart.spool.settings import SpoolSettings
    from headstart.thresholds.reader import AsyncThresholds, Threshold, Thresholds

__all__ = [
    "AsyncSpeculator",
    "AsyncThresholds",
    "Attempt",
    "AttemptResolved",
    "BufferFull",
    "Emitter",
    "Event",
    "InvalidEvent",
    "NotDelivered",
    "Pattern",
    "Resolution",
    "Scrubbing",
    "SpeculationDecision",
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
    **dict.fromkeys(("BufferFull", "Emitter", "NotDelivered"), "emitting.emitter"),
    **dict.fromkeys(("Workflow", "workflow"), "emitting.workflow"),
    "Pattern": "scrubbing.patterns",
    "arm_of": "experiments",
    "Scrubbing": "scrubbing.scrubber",
    "SpoolSettings": "spool.settings",
    "SpoolUnavailable": "spool.layout",
    **dict.fromkeys(("AsyncThresholds", "Threshold", "Thresholds"), "thresholds.reader"),
    **dict.fromkeys(("AsyncSpeculator", "Attempt", "AttemptResolved"), "speculation.speculator"),
    **dict.fromkeys(("SpeculationDecision", "Resolution", "Speculator"), "speculation.speculator"),
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: an emitter needs no Redis client."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"headstart.{_LATER[name]}"), name)
    return found
