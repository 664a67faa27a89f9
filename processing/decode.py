"""Record bytes to events: fast where all is well, exact where something is wrong.

Both agents decode here, so they refuse the same events. The fast path accepts nothing that
`headstart.validation` refuses (a law in the tests).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import orjson

from headstart.events import MAX_CLOCK_SKEW_MS, MAX_DEPTH, MAX_EVENT_BYTES, InvalidEvent
from headstart.frames import MAX_FRAME_BYTES, MAX_FRAME_EVENTS
from headstart.validation import validate
from topics.records import CLOSED_EVENT, EVENT, EventFields


class Refusal(NamedTuple):
    """Why an event, or a whole record, is refused; `place` counts within the frame."""

    raw: bytes
    reason: str
    place: int | None


Decoded = tuple[Sequence[EventFields], Sequence[Refusal]]

_decode = msgspec.json.Decoder(EVENT | list[EVENT]).decode
_decode_closed = msgspec.json.Decoder(CLOSED_EVENT | list[CLOSED_EVENT]).decode
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_MARKS = bytes(set(range(256)) - set(b'{}[]"'))
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def decode_record(value: bytes | None, timestamp_ms: int) -> Decoded:
    """Return the events of one record and what was refused of it.

    `timestamp_ms` is the record's own Kafka timestamp: an event further ahead of it than
    `MAX_CLOCK_SKEW_MS` is refused.
    """
    if value is None or not value:
        return (), (Refusal(b"", "the record has no value", None),)
    if len(value) <= MAX_EVENT_BYTES:
        events = _decode_fast(value)
        if events is not None and len(events) <= MAX_FRAME_EVENTS:
            latest = timestamp_ms + MAX_CLOCK_SKEW_MS
            for event in events:
                if event.timestamp > latest:
                    break
            else:
                return events, ()
    return _one_by_one(value, timestamp_ms)


def _decode_fast(value: bytes) -> Sequence[EventFields] | None:
    """Return the events of a record that breaks no rule but, perhaps, those of size and time.

    Nearly all pass the closed decoder, which sees every byte; without a backslash there is no
    control character either. Scanning the bytes is what costs, so that is for the others.
    """
    decoded = None
    if value.find(b"\\") < 0:
        with contextlib.suppress(*MALFORMED):
            decoded = _decode_closed(value)
    if decoded is None and _looks_harmless(value):
        with contextlib.suppress(*MALFORMED):
            decoded = _decode(value)
    return decoded if decoded is None or type(decoded) is list else (decoded,)


def _looks_harmless(value: bytes) -> bool:
    r"""Return False where the typed decoder might accept what the contract refuses.

    That is control characters (\u00XX), bytes that are no UTF-8 (it does not look into fields it
    does not know), and nesting: few brackets cannot be deep; otherwise pairs are taken away from
    the inside, level by level.
    """
    if b"\\" in value and b"\\u00" in value:
        return False
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
    framed = value.lstrip()[:1] == b"["
    if not framed and value.count(b"{") + value.count(b"[") <= MAX_DEPTH:
        return True
    marks = value.translate(_SQUARE, _NOT_MARKS)
    brackets = marks.translate(None, b'"')
    # A bracket within a string has an odd run of quotes before it, and does not count.
    if len(brackets) + 2 * marks.count(b'""') != len(marks) or b'\\"' in value:
        brackets = _STRING.sub(b"", value).translate(_SQUARE, _NOT_MARKS)
    for _ in range(MAX_DEPTH + framed):  # a frame is one level around its events
        brackets = brackets.replace(b"[]", b"")
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
        parts = split_frame(value)
    except MALFORMED as error:
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
    except MALFORMED as error:
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
    if value.lstrip()[:1] == b"[":
        for raw in split_frame(value):
            with contextlib.suppress(*MALFORMED):  # a neighbour may be no event at all
                if msgspec.json.decode(raw, type=type(event)) == event:
                    return raw
    return value


def split_frame(value: bytes) -> list[bytes]:
    """Return the bytes of each element of a JSON array. Raises msgspec's `DecodeError`."""
    return [bytes(raw) for raw in _split(value)]
