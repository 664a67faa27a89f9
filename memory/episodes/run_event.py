"""`RunEvent`: one stored event of a run, as assembly reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from memory.episodes.canonical import clean_text

MAX_EVENTS: Final = 10_000
"""Events of a run whose content is read; later ones are counted only."""
MAX_BYTES: Final = 64_000_000
"""The same of the bytes of their content."""


class RunEvent(NamedTuple):
    """An event without tenant, workflow type and id, which are those of its run."""

    timestamp: int
    """Unix ms."""
    id: str
    event_type: str
    task_id: str | None
    user_id: str | None
    agent_id: str | None
    session_id: str | None
    tool_id: str | None
    success: bool | None
    confidence: float | None
    data: bytes | Mapping[str, Any]
    """JSON as text, or decoded."""

    @property
    def content(self) -> Mapping[str, Any]:
        """`data`, decoded; empty if it is no object."""
        data = self.data
        if isinstance(data, bytes):
            try:
                data = orjson.loads(data)
            except orjson.JSONDecodeError:  # an integer beyond 64 bits is a float; no other fails
                return {}
        return data if isinstance(data, Mapping) else {}


def run_event(event: Mapping[str, Any]) -> RunEvent:
    """Return an event in the form in which it is emitted and exported. Raises `ValueError`."""
    try:
        at, own, kind = event["timestamp"], event["id"], event["event_type"]
    except KeyError as error:
        raise ValueError(f"an event without {error.args[0]}") from error
    if type(at) is not int or not isinstance(own, str) or not isinstance(kind, str):
        raise ValueError("an event with a timestamp, id or event_type of a wrong type")
    success = event.get("success")
    return RunEvent(
        timestamp=at,
        id=own.lower(),
        event_type=kind,
        task_id=_text(event, "task_id"),
        user_id=_text(event, "user_id"),
        agent_id=_text(event, "agent_id"),
        session_id=_text(event, "session_id"),
        tool_id=_text(event, "tool_id"),
        success=success if isinstance(success, bool) else None,
        confidence=_share(event.get("confidence")),
        data=event.get("data") or {},
    )


def _text(event: Mapping[str, Any], name: str) -> str | None:
    value = event.get(name)
    return clean_text(value) if isinstance(value, str) and value else None


def _share(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 1 else None


def in_order(events: Iterable[RunEvent]) -> list[RunEvent]:
    """Return the events in the order in which they happened, each once."""
    found: dict[tuple[int, str], RunEvent] = {}
    for event in events:
        found.setdefault(event[:2], event)
    return [found[key] for key in sorted(found)]


def within_bounds(events: Iterable[RunEvent]) -> Iterator[RunEvent]:
    """Yield ordered events, those beyond `MAX_EVENTS` and `MAX_BYTES` without their content."""
    size = 0
    for number, event in enumerate(events):
        if isinstance(event.data, bytes):
            size += len(event.data)
        if number < MAX_EVENTS and size <= MAX_BYTES:
            yield event
        elif event.data:
            yield event._replace(data={})
        else:
            yield event
