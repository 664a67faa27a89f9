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
    from headstart.emitting.call_spans import CallSpans
    from headstart.emitting.emitter import BufferFull, Emitter, NotDelivered
    from headstart.emitting.workflow import Workflow, workflow
    from headstart.experiments import arm_of
    from headstart.prediction.callable_predictor import CallablePredictor
    from headstart.prediction.interface import PredictedCall, ToolCall
    from headstart.prediction.predictor import CallPredictor
    from headstart.scrubbing.patterns import Pattern
    from headstart.scrubbing.scrubber import Scrubbing
    from headstart.shared_learning.shared_learning import SharedLearning
    from headstart.speculation.agent_run import AgentRun
    from headstart.speculation.speculator import (
        AsyncSpeculator,
        CallInThread,
        GuessedCall,
        GuessFailed,
        RequestedCall,
        SpeculationDecision,
        Speculator,
        StartedCall,
        ThreadTurn,
        Turn,
        TurnSettled,
    )
    from headstart.speculation.thread_agent_run import ThreadAgentRun
    from headstart.spool.layout import SpoolUnavailable
    from headstart.spool.settings import SpoolSettings
    from headstart.thresholds.reader import AsyncThresholds, Threshold, Thresholds

__all__ = [
    "AgentRun",
    "AsyncSpeculator",
    "AsyncThresholds",
    "BufferFull",
    "CallInThread",
    "CallPredictor",
    "CallSpans",
    "CallablePredictor",
    "Emitter",
    "Event",
    "GuessFailed",
    "GuessedCall",
    "InvalidEvent",
    "NotDelivered",
    "Pattern",
    "PredictedCall",
    "RequestedCall",
    "Scrubbing",
    "SharedLearning",
    "SpeculationDecision",
    "Speculator",
    "SpoolSettings",
    "SpoolUnavailable",
    "StartedCall",
    "ThreadAgentRun",
    "ThreadTurn",
    "Threshold",
    "Thresholds",
    "ToolCall",
    "Turn",
    "TurnSettled",
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

_SPECULATOR = "speculation.speculator"
_LATER = {
    **dict.fromkeys(("BufferFull", "Emitter", "NotDelivered"), "emitting.emitter"),
    **dict.fromkeys(("Workflow", "workflow"), "emitting.workflow"),
    "AgentRun": "speculation.agent_run",
    "CallPredictor": "prediction.predictor",
    "CallSpans": "emitting.call_spans",
    "CallablePredictor": "prediction.callable_predictor",
    "Pattern": "scrubbing.patterns",
    **dict.fromkeys(("PredictedCall", "ToolCall"), "prediction.interface"),
    "ThreadAgentRun": "speculation.thread_agent_run",
    "arm_of": "experiments",
    "Scrubbing": "scrubbing.scrubber",
    "SharedLearning": "shared_learning.shared_learning",
    "SpoolSettings": "spool.settings",
    "SpoolUnavailable": "spool.layout",
    **dict.fromkeys(("AsyncThresholds", "Threshold", "Thresholds"), "thresholds.reader"),
    **dict.fromkeys(("AsyncSpeculator", "SpeculationDecision", "Speculator"), _SPECULATOR),
    **dict.fromkeys(("GuessFailed", "GuessedCall", "RequestedCall"), _SPECULATOR),
    **dict.fromkeys(("CallInThread", "StartedCall", "ThreadTurn"), _SPECULATOR),
    **dict.fromkeys(("Turn", "TurnSettled"), _SPECULATOR),
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: an emitter needs no Redis client."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"headstart.{_LATER[name]}"), name)
    return found
