"""The event as the service decodes it: msgspec structs derived from the client's record types.

The structs reject what `headstart.events.validation` rejects, except control characters and depth,
which the guard in `processing.records.decode` checks first.
"""

from __future__ import annotations

import inspect
import uuid
from typing import Annotated, Any, Literal, Protocol, Required, get_args, get_origin, get_type_hints

import msgspec

from headstart.events.schema import Bounds, Event, EventId, Text


class PredictionFields(Protocol):
    """What the agents read of `data.prediction`."""

    tool_id: str | None
    mode: str | None
    was_correct: bool | None
    speculated: bool | None
    not_startable: str | None
    calibrated: bool | None


class ResultFields(Protocol):
    """What the agents read of `data.result` (milliseconds)."""

    execution_time_ms: float | None
    gain_ms: float | None
    cost_ms: float | None


class DataFields(Protocol):
    """What the agents read of `data`."""

    context: dict[str, Any] | None
    prediction: PredictionFields | None
    result: ResultFields | None
    target_id: str | None
    accepted: bool | None


class EventFields(Protocol):
    """A decoded event; a field that is absent or null is None."""

    id: uuid.UUID | str
    event_type: str
    tenant: str
    workflow_type: str
    workflow_id: str
    timestamp: int
    task_id: str | None
    user_id: str | None
    agent_id: str | None
    session_id: str | None
    tool_id: str | None
    success: bool | None
    confidence: float | None
    data: DataFields | None
    origin: tuple[str, int] | None


_SMALL = msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)
"""Larger integers are left to the open decoder, whose guard refuses those beyond any float."""
Scalar = str | Annotated[int, _SMALL] | float | bool | None
_ID = msgspec.Meta(min_length=36, max_length=36)
"""An id in the usual form. Kept as text: converting it to a UUID takes 30 % of decoding."""


def derive(record: Any, *, documented: bool, closed: bool = False) -> Any:
    """Return a msgspec struct type for a TypedDict of the client.

    `documented`: keep patterns and text ids, for the JSON Schema; otherwise patterns are left to
    the guard and ids are parsed in C, for speed. `closed`: reject unknown fields, and nesting in
    free-form values, so that every part of an event is checked; ids stay text of 36 characters,
    whose form the guard checks.
    """
    fields: list[Any] = []
    hints = get_type_hints(record, include_extras=True)
    for name in sorted(hints, key=lambda field: field not in record.__required_keys__):
        kind = _field(hints[name], documented, closed)
        required = name in record.__required_keys__
        fields.append((name, kind) if required else (name, kind | None, None))
    return msgspec.defstruct(
        record.__name__,
        fields,
        gc=False,
        kw_only=True,
        forbid_unknown_fields=closed,
        namespace={"__doc__": inspect.getdoc(record)},
    )


def _field(hint: Any, documented: bool, closed: bool) -> Any:
    origin = get_origin(hint)
    if origin is Required:
        return _field(get_args(hint)[0], documented, closed)
    if hint == EventId and not documented:
        return Annotated[str, _ID] if closed else uuid.UUID
    if origin is Annotated:
        base, bound = get_args(hint)
        return Annotated[base, _meta(bound, documented)]
    if hint is Any:
        return Scalar if closed else Any
    if origin is Literal:
        return hint
    if origin is dict:
        return dict[str, _field(get_args(hint)[1], documented, closed)]  # type: ignore[misc]
    if origin is list:
        return list[_field(get_args(hint)[0], documented, closed)]  # type: ignore[misc]
    if origin is tuple:
        return tuple[tuple(_field(item, documented, closed) for item in get_args(hint))]  # type: ignore[misc]
    if hasattr(hint, "__required_keys__"):
        return derive(hint, documented=documented, closed=closed)
    return hint


def _meta(bound: Text | Bounds, documented: bool) -> msgspec.Meta:
    if isinstance(bound, Bounds):
        return msgspec.Meta(ge=bound.min, le=bound.max)
    return msgspec.Meta(
        min_length=bound.min,
        max_length=bound.max,
        pattern=bound.pattern if documented else None,
    )


CLOSED_EVENT: Any = derive(Event, documented=False, closed=True)
"""The struct for most events: no unknown fields, no nested free-form values."""
EVENT: Any = derive(Event, documented=False)
"""The struct for all events; instances satisfy `EventFields`."""
