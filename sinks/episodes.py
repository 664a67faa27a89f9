"""Episodes to Postgres: the sink of `headstart.events`.

Takes events that were decoded and validated; stores each once, whatever is delivered again.
"""

from __future__ import annotations

from typing import ClassVar, Final

from sinks.copytext import encode_columns, encode_json
from sinks.staging import Record, StagedSink
from sinks.statements import load_statements
from topics.catalogue import EPISODES_GROUP

_COLUMNS: Final = frozenset(
    (
        *("id", "event_type", "tenant", "workflow_type", "workflow_id", "timestamp"),
        *("task_id", "user_id", "agent_id", "session_id"),
        *("tool_id", "success", "confidence", "data"),
    )
)
_NOT_EXTRA: Final = _COLUMNS | {"origin"}  # origin is transport only, never stored

_BOOLEAN: Final = {True: "t", False: "f", None: ""}


def encode_event(event: Record, /) -> bytes:
    """Return an event as one line of COPY text, in the column order of the stage."""
    get = event.get
    confidence = get("confidence")
    head = encode_columns(
        (
            event["id"],
            event["tenant"],
            event["event_type"],
            event["workflow_type"],
            event["workflow_id"],
            get("task_id") or "",
            get("user_id") or "",
            get("agent_id") or "",
            get("session_id") or "",
            str(event["timestamp"]),
            get("tool_id") or "",
            _BOOLEAN[get("success")],
            "" if confidence is None else str(confidence),
        )
    )
    data = get("data")
    extra = b""
    if not event.keys() <= _NOT_EXTRA:
        extra = encode_json({key: event[key] for key in event.keys() - _NOT_EXTRA})
    return b"%b\t%b\t%b\n" % (head, b"{}" if data is None else encode_json(data), extra)


class EpisodeSink(StagedSink):
    """Stores validated events in `episodic_events`; unknown top-level fields go to `extra`.

    Use: `sink = await EpisodeSink.open(dsn)`, then `await sink.store(events, {partition: next
    offset}, topic=..., epoch=..., on_refused=...)`.
    """

    consumer: ClassVar = EPISODES_GROUP
    sql: ClassVar = load_statements("episodes")
    encode = staticmethod(encode_event)
