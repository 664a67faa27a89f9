"""Headstart client: emit episodic events, read learned speculation thresholds.

with headstart.Emitter("127.0.0.1:9092") as emitter:
    emitter.emit(event_type="task_complete", workflow_type="refund", workflow_id="w1", ...)
threshold = headstart.Thresholds("redis://127.0.0.1:6379/0").get(workflow_type="refund")
"""

from headstart.emitter import BufferFull, Emitter, NotDelivered
from headstart.events import Event, InvalidEvent
from headstart.spool import SpoolSettings, SpoolUnavailable
from headstart.thresholds import AsyncThresholds, Threshold, Thresholds
from headstart.validation import validate

__all__ = [
    "AsyncThresholds",
    "BufferFull",
    "Emitter",
    "Event",
    "InvalidEvent",
    "NotDelivered",
    "SpoolSettings",
    "SpoolUnavailable",
    "Threshold",
    "Thresholds",
    "validate",
]
