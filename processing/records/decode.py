"""Decodes records to events: fast where they are valid, with exact reasons where they are not.

Both agents decode here, so they reject the same events. The fast path accepts nothing that
`headstart.events.validation` rejects (a law in the tests).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from headstart.events.exact_json import dump_exactly, load_exactly
from headstart.events.frames import MAX_FRAME_BYTES, MAX_FRAME_EVENTS
from headstart.events.schema import MAX_CLOCK_SKEW_MS, MAX_DEPTH, MAX_EVENT_BYTES, InvalidEvent
from headstart.events.validation import check_fields
from topics.kafka.limits import WholeBytes
from topics.kafka.old_formats import NO_TIMESTAMP
from topics.schema.event_structs import CLOSED_EVENT, EVENT, EventFields

WITHOUT_TIMESTAMP: Final = (
    "the record has no Kafka timestamp, as in message format 0; produce it again with a client of "
    "Kafka 0.11 or newer"
)


class Rejection(NamedTuple):
    """Why an event, or a whole record, is rejected; `place`: index of the event in its frame."""

    raw: bytes
    reason: str
    place: int | None


Decoded = tuple[Sequence[EventFields], Sequence[Rejection]]

_decode = msgspec.json.Decoder(EVENT | list[EVENT]).decode
_decode_closed = msgspec.json.Decoder(CLOSED_EVENT | list[CLOSED_EVENT]).decode
_decode_lines = msgspec.json.Decoder(CLOSED_EVENT).decode_lines
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_MARKS = bytes(set(range(256)) - set(b'{}[]"'))
# Possessive, and an unclosed string extends to the end, so that no byte is read twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_LARGE = re.compile(rb"[:,\[\s]-?(?:[0-9][0-9.]*[eE]\+?0*[1-9][0-9]{2}|[0-9]{210})")
"""What may be a number beyond the largest float, 1.8e308; a two-digit exponent adds 99."""
_timestamp, _id = attrgetter("timestamp"), attrgetter("id")
_ID_FORM = b"00000000-0000-0000-0000-000000000000"
_ID_DIGITS = bytes.maketrans(b"123456789abcdefABCDEF", b"0" * 21)
_first: Any = itemgetter(0)
_last: Any = itemgetter(-1)
_OPENING, _CLOSING = set(b"{"), set(b"}")

AHEAD: Final = "ahead of the record's Kafka timestamp"


def decode_record(value: bytes | None, timestamp_ms: int) -> Decoded:
    """Return the events of one record and what was rejected of it.

    `timestamp_ms` is the record's own Kafka timestamp: an event further ahead of it than
    `MAX_CLOCK_SKEW_MS` is rejected.
    """
    if value is None or not value:
        return (), (Rejection(b"", "the record has no value", None),)
    if type(value) is WholeBytes:
        return (), (Rejection(bytes(value), value.reason, None),)
    events = _decode_fast(value, timestamp_ms)
    if events is not None:
        return events, ()
    if timestamp_ms == NO_TIMESTAMP:
        return (), (Rejection(value, WITHOUT_TIMESTAMP, None),)
    return _one_by_one(value, timestamp_ms)


def decode_records(
    values: Sequence[bytes | None], timestamps_ms: Sequence[int]
) -> Sequence[EventFields | list[EventFields] | None]:
    """Return what each of several records holds: an event, or the events of a frame.

    None for a record that may be invalid, and which `decode_record` has to decode.
    """
    together = _decode_together(values, timestamps_ms)
    if together is not None:
        return together
    return [
        _decode_fast(value, timestamp_ms) if value else None
        for value, timestamp_ms in zip(values, timestamps_ms, strict=True)
    ]


def _decode_together(
    values: Sequence[bytes | None], timestamps_ms: Sequence[int]
) -> Sequence[EventFields] | None:
    """Return the events of records that hold one each; None where not all are of the usual form.

    Each begins and ends with a brace, and no string extends over a line feed. So a record that
    another one follows is complete, and where there are as many events as records, each record is
    one event.
    """
    if len(values) < 2:
        return None
    try:
        if {*map(_first, values)} != _OPENING or {*map(_last, values)} != _CLOSING:
            return None
        lines = b"\n".join(values)  # type: ignore[arg-type]
        if _may_hide_controls(lines):
            return None
        events: Sequence[EventFields] = _decode_lines(lines)
    except (TypeError, IndexError, *MALFORMED):  # no value, an empty one, or an unusual form
        return None
    if len(events) != len(values) or max(map(len, values)) > MAX_EVENT_BYTES:  # type: ignore[arg-type]
        return None
    latest = min(timestamps_ms) + MAX_CLOCK_SKEW_MS
    return events if max(map(_timestamp, events)) <= latest and _have_ids(events) else None


def _decode_fast(value: bytes, timestamp_ms: int) -> list[EventFields] | None:
    """Return the events of a valid record; None where it may be invalid.

    Nearly all pass the closed decoder, which checks every byte. Only the others are scanned, which
    is slower.
    """
    if len(value) > MAX_EVENT_BYTES:
        return None
    decoded = None
    if not _may_hide_controls(value):
        with contextlib.suppress(*MALFORMED):
            closed = _decode_closed(value)
            if _have_ids(closed if type(closed) is list else (closed,)):
                decoded = closed
    if decoded is None and _looks_harmless(value):
        with contextlib.suppress(*MALFORMED):
            decoded = _decode(value)
    if decoded is None:
        return None
    events: list[EventFields] = decoded if type(decoded) is list else [decoded]
    latest = timestamp_ms + MAX_CLOCK_SKEW_MS
    if len(events) > MAX_FRAME_EVENTS or (events and max(map(_timestamp, events)) > latest):
        return None
    return events


def _have_ids(events: Sequence[EventFields]) -> bool:
    """Return whether the ids of events, 36 characters each, have the form of a UUID."""
    ids = "".join(map(_id, events)).encode("ascii", "replace")
    return ids.translate(_ID_DIGITS) == _ID_FORM * len(events)


def _may_hide_controls(value: bytes) -> bool:
    r"""Return whether strings may hold control characters, which only \u00XX can write.

    No decoder accepts them as plain bytes. Most records have no backslash, which is quickly found.
    """
    return b"\\" in value and b"\\u00" in value


def _looks_harmless(value: bytes) -> bool:
    r"""Return False where the typed decoder might accept what the contract refuses.

    That is control characters (\u00XX), numbers beyond any float, bytes that are not UTF-8 (it does
    not look into fields it does not know), and nesting: few brackets cannot be deep; otherwise
    pairs are taken away from the inside, level by level.
    """
    if _may_hide_controls(value) or _LARGE.search(value):
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
        return (), (Rejection(value, reason, None),)
    if value.lstrip()[:1] != b"[":
        return _gather([value], timestamp_ms, framed=False)
    try:
        parts = split_frame(value)
    except MALFORMED as error:
        return (), (Rejection(value, f"not JSON: {error}", None),)
    if len(parts) > MAX_FRAME_EVENTS:
        reason = f"the frame has {len(parts)} events, the limit is {MAX_FRAME_EVENTS}"
        return (), (Rejection(value, reason, None),)
    return _gather(parts, timestamp_ms, framed=True)


def _gather(parts: list[bytes], timestamp_ms: int, *, framed: bool) -> Decoded:
    events, refusals = [], []
    for index, raw in enumerate(parts):
        try:
            events.append(_decode_exactly(raw, timestamp_ms))
        except InvalidEvent as error:
            refusals.append(Rejection(raw, str(error), index if framed else None))
    return events, refusals


def _decode_exactly(raw: bytes, timestamp_ms: int) -> EventFields:
    """Decode one event by the client's own check, which names the field that is wrong."""
    if len(raw) > MAX_EVENT_BYTES:
        raise InvalidEvent("", f"the event has {len(raw)} bytes, the limit is {MAX_EVENT_BYTES}")
    event = load_event(raw)
    check_fields(event)
    if event["timestamp"] > timestamp_ms + MAX_CLOCK_SKEW_MS:
        ahead = (event["timestamp"] - timestamp_ms) / 3_600_000
        raise InvalidEvent("timestamp", f"is {ahead:.1f} hours {AHEAD}; give Unix milliseconds")
    try:
        # Encoded again: of a repeated field the schema takes the last, but msgspec checks each.
        decoded: EventFields = msgspec.json.decode(dump_exactly(event), type=EVENT)
    except MALFORMED as error:
        raise InvalidEvent("", f"not an event: {error}") from error
    return decoded


def load_event(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in `raw`. Raises `InvalidEvent`."""
    try:
        event = load_exactly(raw)  # as the fast decoders: a rounded integer is another context
    except ValueError as error:  # no JSON, or an integer of more digits than Python converts
        raise InvalidEvent("", f"not JSON: {error}") from error
    if not isinstance(event, dict):
        raise InvalidEvent("", "an event is a JSON object")
    return event


class EventBytes:
    """The bytes of the decoded events of one record, unknown fields included."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        framed = value.lstrip()[:1] == b"["
        self._parts = iter(split_frame(value)) if framed else repeat(value)

    def of(self, event: EventFields) -> bytes:
        """Return the bytes of one event. Calls follow the record's order, so none decodes twice."""
        for raw in self._parts:
            if _is_of(raw, event):
                return raw
        return self._value


def _is_of(raw: bytes, event: EventFields) -> bool:
    """Return whether an event was decoded from some bytes, which may not be an event at all."""
    with contextlib.suppress(*MALFORMED):
        if msgspec.json.decode(raw, type=type(event)) == event:
            return True
    with contextlib.suppress(InvalidEvent, *MALFORMED):  # see `_decode_exactly`
        encoded = dump_exactly(load_event(raw))
        return bool(msgspec.json.decode(encoded, type=type(event)) == event)
    return False


def split_frame(value: bytes) -> list[bytes]:
    """Return the bytes of each element of a JSON array. Raises msgspec's `DecodeError`."""
    return [bytes(raw) for raw in _split(value)]
