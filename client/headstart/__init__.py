"""Headstart client: emit episodic events, read learned speculation thresholds.

with headstart.Emitter("127.0.0.1:9092") as emitter:
    emitter.emit(event_type="task_complete", workflow_type="refund", workflow_id="w1", ...)
threshold = headstart.Thresholds("redis://127.0.0.1:6379/0").get(workflow_type="refund")
"""

from typing import TYPE_CHECKING, Any

from headstart.directory import SpoolUnavailable
from headstart.emitter import BufferFull, Emitter, NotDelivered
from headstart.events import Event, InvalidEvent
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
    "SpoolSettings",
    "SpoolUnavailable",
    "Threshold",
    "Thresholds",
    "validate",
]

_READERS = ("AsyncThresholds", "Threshold", "Thresholds")


def __getattr__(name: str) -> Any:
    """Import the reader when it is first asked for: who only emits needs no Redis client."""
    if name not in _READERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headstart import thresholds

    return getattr(thresholds, name)
