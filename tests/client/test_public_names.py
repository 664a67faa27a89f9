"""What executors import: a change here is a change of the public interface."""

from __future__ import annotations

import headstart


def test_the_exported_names() -> None:
    assert headstart.__all__ == [
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


def test_every_exported_name_is_there() -> None:
    assert all(hasattr(headstart, name) for name in headstart.__all__)


def test_the_errors_are_what_callers_already_catch() -> None:
    assert issubclass(headstart.InvalidEvent, ValueError)
    assert issubclass(headstart.NotDelivered, TimeoutError)
    assert issubclass(headstart.BufferFull, RuntimeError)
    assert issubclass(headstart.SpoolUnavailable, OSError)
