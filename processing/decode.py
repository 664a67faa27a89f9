"""Record bytes to events: fast where all is well, exact where something is wrong.

Both agents decode here, so they refuse the same events. The fast path accepts nothing that
`headstart.validation` refuses (a law in the tests).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import orjson

from headstart.events import MAX_CLOCK_SKEW_MS, MAX_DEPTH, MAX_EVENT_BYTES, InvalidEvent
from headstart.frames import MAX_FRAME_BYTES, MAX_FRAME_EVENTS
from headstart.validation import validate
from topics.records import EVENT, EventFields


class Refusal(NamedTuple):
    """Why an event, or a whole record, is refused; `place` counts within the frame."""

    raw: bytes
    reason: str
    place: int | None


Decoded = tuple[Sequence[EventFields], Sequence[Refusal]]

_decode = msgspec.json.Decoder(EVENT | list[EVENT]).decode
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))


def decode_record(value: bytes | None, timestamp_ms: int) -> Decoded:
    """Return the events of one record and what was refused of it.

    `timestamp_ms` is the record's own Kafka timestamp: an event further ahead of it than
    `MAX_CLOCK_SKEW_MS` is refused.
    """
    if value is None or not value:
        return (), (Refusal(b"", "the record has no value", None),)
    if len(value) <= MAX_EVENT_BYTES and _looks_harmless(value):
        try:
            decoded = _decode(value)
        except _MALFORMED:
            return _one_by_one(value, timestamp_ms)
        events = decoded if type(decoded) is list else (decoded,)
        latest = timestamp_ms + MAX_CLOCK_SKEW_MS
        if len(events) > MAX_FRAME_EVENTS or any(event.timestamp > latest for event in events):
            return _one_by_one(value, timestamp_ms)
        return events, ()
    return _one_by_one(value, timestamp_ms)


def _looks_harmless(value: bytes) -> bool:
    r"""Return False where the typed decoder might accept what the contract refuses.

    That is control characters (\u00XX), and nesting: few brackets cannot be deep; otherwise pairs
    are taken away from the inside until none is left. Brackets within strings can only make this
    answer False, which costs time and nothing else.
    """
    if b"\\" in value and b"\\u00" in value:
        return False
    if value.count(b"{") + value.count(b"[") <= MAX_DEPTH:
        return True
    brackets = value.translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH + 1):  # a frame is one level around its events
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if not brackets:
            return True
    return False


def _one_by_one(value: bytes, timestamp_ms: int) -> Decoded:
    if len(value) > MAX_FRAME_BYTES and value.lstrip()[:1] == b"[":
        reason = f"the frame has {len(value)} bytes, the limit is {MAX_FRAME_BYTES}"
        return (), (Refusal(value, reason, None),)
    if value.lstrip()[:1] != b"[":
        return _gather([value], timestamp_ms, framed=False)
    try:
        parts = [bytes(raw) for raw in _split(value)]
    except _MALFORMED as error:
        return (), (Refusal(value, f"not JSON: {error}", None),)
    if len(parts) > MAX_FRAME_EVENTS:
        reason = f"the frame has {len(parts)} events, the limit is {MAX_FRAME_EVENTS}"
        return (), (Refusal(value, reason, None),)
    return _gather(parts, timestamp_ms, framed=True)


def _gather(parts: list[bytes], timestamp_ms: int, *, framed: bool) -> Decoded:
    events, refusals = [], []
    for index, raw in enumerate(parts):
        try:
            events.append(_decode_exactly(raw, timestamp_ms))
        except InvalidEvent as error:
            refusals.append(Refusal(raw, str(error), index if framed else None))
    return events, refusals


def _decode_exactly(raw: bytes, timestamp_ms: int) -> EventFields:
    """Decode one event by the client's own check, which names the field that is wrong."""
    if len(raw) > MAX_EVENT_BYTES:
        raise InvalidEvent("", f"the event has {len(raw)} bytes, the limit is {MAX_EVENT_BYTES}")
    event = load_event(raw)
    validate(event, now_ms=timestamp_ms)
    try:
        decoded: EventFields = msgspec.json.decode(raw, type=EVENT)
    except _MALFORMED as error:
        raise InvalidEvent("", f"not an event: {error}") from error
    return decoded


def load_event(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in `raw`. Raises `InvalidEvent`."""
    try:
        event = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidEvent("", f"not JSON: {error}") from error
    if not isinstance(event, dict):
        raise InvalidEvent("", "an event is a JSON object")
    return event


def event_bytes(value: bytes, event: EventFields) -> bytes:
    """Return the bytes of one decoded event within its record, unknown fields included."""
    decoded = orjson.loads(value)
    for candidate in decoded if isinstance(decoded, list) else [decoded]:
        if uuid.UUID(candidate["id"]) == event.id:
            return orjson.dumps(candidate)
    return value
