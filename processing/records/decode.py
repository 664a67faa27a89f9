"""Record bytes to events: fast where all is well, exact where something is wrong.

Both agents decode here, so they refuse the same events. The fast path accepts nothing that
`headstart.events.validation` refuses (a law in the tests).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import msgspec
import orjson

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
    """Why an event, or a whole record, is refused; `place` counts within the frame."""

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
# Possessive, and an unclosed string goes to the end: no byte is looked at twice, whatever comes.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_LARGE = re.compile(rb"[:,\[\s]-?(?:[0-9][0-9.]*[eE]\+?0*[1-9][0-9]{2}|[0-9]{210})")
"""What may be a number beyond any float, 1.8e308; an exponent of two digits adds 99."""
_timestamp, _id = attrgetter("timestamp"), attrgetter("id")
_ID_FORM = b"00000000-0000-0000-0000-000000000000"
_ID_DIGITS = bytes.maketrans(b"123456789abcdefABCDEF", b"0" * 21)
_first: Any = itemgetter(0)
_last: Any = itemgetter(-1)
_OPENING, _CLOSING = set(b"{"), set(b"}")

AHEAD: Final = "ahead of the record's Kafka timestamp"


def decode_record(value: bytes | None, timestamp_ms: int) -> Decoded:
    """Return the events of one record and what was refused of it.

    `timestamp_ms` is the record's own Kafka timestamp: an event further ahead of it than
    `MAX_CLOCK_SKEW_MS` is refused.
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

    None for a record that `decode_record` has to look at: something may be wrong with it.
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
    """Return the events of records that hold one each; None where not all are as most are.

    Each begins with a brace and ends with one, and no string goes on over a line feed. So where one
    follows another, the first is complete; and where there are as many events as records, each
    record is one event.
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
    except (TypeError, IndexError, *MALFORMED):  # no value, an empty one, or none as most are
        return None
    if len(events) != len(values) or max(map(len, values)) > MAX_EVENT_BYTES:  # type: ignore[arg-type]
        return None
    latest = min(timestamps_ms) + MAX_CLOCK_SKEW_MS
    return events if max(map(_timestamp, events)) <= latest and _have_ids(events) else None


def _decode_fast(value: bytes, timestamp_ms: int) -> list[EventFields] | None:
    """Return the events of a record that breaks no rule; None where that takes a closer look.

    Nearly all pass the closed decoder, which sees every byte. Scanning the bytes is what costs, so
    that is for the others.
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

    As plain bytes no decoder takes them. Most records have no backslash, and that is soon seen.
    """
    return b"\\" in value and b"\\u00" in value


def _looks_harmless(value: bytes) -> bool:
    r"""Return False where the typed decoder might accept what the contract refuses.

    That is control characters (\u00XX), numbers beyond any float, bytes that are no UTF-8 (it does
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
        # Written anew: of a field that stands twice the contract knows the last, and msgspec would
        # check each.
        decoded: EventFields = msgspec.json.decode(orjson.dumps(event), type=EVENT)
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


class EventBytes:
    """The bytes of the decoded events of one record, unknown fields included."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        framed = value.lstrip()[:1] == b"["
        self._parts = iter(split_frame(value)) if framed else repeat(value)

    def of(self, event: EventFields) -> bytes:
        """Return those of one event. Asked in the order of the record, so none is decoded twice."""
        for raw in self._parts:
            if _is_of(raw, event):
                return raw
        return self._value


def _is_of(raw: bytes, event: EventFields) -> bool:
    """Return whether an event was decoded from some bytes, which may be no event at all."""
    with contextlib.suppress(*MALFORMED):
        if msgspec.json.decode(raw, type=type(event)) == event:
            return True
    with contextlib.suppress(InvalidEvent, *MALFORMED):  # see `_decode_exactly`
        written = orjson.dumps(load_event(raw))
        return bool(msgspec.json.decode(written, type=type(event)) == event)
    return False


def split_frame(value: bytes) -> list[bytes]:
    """Return the bytes of each element of a JSON array. Raises msgspec's `DecodeError`."""
    return [bytes(raw) for raw in _split(value)]
