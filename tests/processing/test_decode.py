"""Records by hand: limits, places and reasons of what is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from headstart.events.frames import MAX_FRAME_BYTES, MAX_FRAME_EVENTS, encode_frame
from headstart.events.schema import MAX_CLOCK_SKEW_MS, MAX_DEPTH, MAX_EVENT_BYTES, Event, new_id
from processing.records.decode import EventBytes, decode_record, decode_records, split_frame
from tests.patience import no_end_in_sight
from tests.sample_event import BASE, NOW


def nested(levels: int, left: str, right: str) -> str:
    return left * levels + "1" + right * levels


def event_json(**fields: Any) -> bytes:
    return orjson.dumps({**BASE, **fields})


def test_a_bad_event_is_refused_alone_with_its_place() -> None:
    parts = [event_json(n=0), event_json(confidence=7), b'"text"', b"null", event_json(n=4)]
    events, refused = decode_record(encode_frame(parts), NOW)
    assert len(events) == 2
    assert [(refusal.place, refusal.raw) for refusal in refused] == [
        (1, parts[1]), (2, parts[2]), (3, parts[3]),
    ]  # fmt: skip
    assert refused[0].reason == "confidence: must be at least 0 and at most 1, not 7"
    assert refused[1].reason == "an event is a JSON object"


@pytest.mark.parametrize("value", [None, b""])
def test_a_record_without_a_value(value: bytes | None) -> None:
    events, (refusal,) = decode_record(value, NOW)
    assert not events
    assert refusal == (b"", "the record has no value", None)


@pytest.mark.parametrize(
    "value", [b"{", b"[", b"nonsense", b"\xff", b"[1,", b"[{}}", b"  ", b'{"id":1} x', b"[[}"]
)
def test_invalid_json_is_refused_whole(value: bytes) -> None:
    events, (refusal,) = decode_record(value, NOW)
    assert not events
    assert refusal.raw == value
    assert refusal.place is None
    assert refusal.reason.startswith("not JSON: ")


@pytest.mark.parametrize("begin", [b'["', b'{"a":"', b"{" * 40 + b'"'])
def test_a_string_that_does_not_end_takes_no_time(begin: bytes) -> None:
    value = begin + b'\\"' * ((MAX_EVENT_BYTES - len(begin)) // 2)
    with no_end_in_sight():
        (refusal,) = decode_record(value, NOW)[1]
    assert refusal.reason.startswith("not JSON: ")


@pytest.mark.parametrize("value", [b"1", b'"x"', b"null", b"true"])
def test_json_that_is_no_object_is_refused(value: bytes) -> None:
    assert decode_record(value, NOW)[1] == [(value, "an event is a JSON object", None)]


@pytest.mark.parametrize(
    "number",
    [
        b"1e400",
        b"-1E+0400",
        b"1.5e131071",
        b"[1,1e309]",
        b'{"a": 2e999}',
        b"9" * 400,
        b"1" + b"0" * 250 + b"e60",
        b"1" + b"0" * 300 + b"E9",
    ],
)
def test_a_number_beyond_any_float_is_refused_alone_and_among_others(number: bytes) -> None:
    """Postgres would keep it as it is written, and it could not be read back."""
    bad = event_json()[:-1] + b',"mine":' + number + b"}"
    for value in (bad, encode_frame([event_json(), bad]), encode_frame([b"1", bad])):
        assert bad in [refusal.raw for refusal in decode_record(value, NOW)[1]]


@pytest.mark.parametrize("number", [b"1e308", b"1e-400", b'"1e400"', b"1e099", b"9" * 308])
def test_representable_numbers_are_accepted(number: bytes) -> None:
    good = event_json()[:-1] + b',"mine":' + number + b"}"
    assert len(decode_record(good, NOW)[0]) == 1


def test_an_empty_frame_is_nothing() -> None:
    events, refused = decode_record(b" [ ] ", NOW)
    assert (list(events), list(refused)) == ([], [])


def test_the_timestamp_is_held_against_that_of_the_record() -> None:
    late = event_json(timestamp=NOW + MAX_CLOCK_SKEW_MS + 1)
    assert len(decode_record(late, NOW + 1)[0]) == 1
    events, (refusal,) = decode_record(encode_frame([late, event_json()]), NOW)
    assert len(events) == 1
    assert refusal.place == 0
    assert refusal.reason.startswith("timestamp: is 1.0 hours ahead")


def test_an_event_of_the_largest_size_and_a_larger_one() -> None:
    room = MAX_EVENT_BYTES - len(event_json(mine=""))
    largest, larger = event_json(mine="x" * room), event_json(mine="x" * (room + 1))
    assert len(decode_record(largest, NOW)[0]) == 1
    assert decode_record(larger, NOW)[1][0].reason.startswith(f"the event has {len(larger)} bytes")
    events, (refusal,) = decode_record(encode_frame([larger, largest]), NOW)
    assert (len(events), refusal.place, refusal.raw) == (1, 0, larger)


def test_a_frame_of_the_most_events_and_one_of_more() -> None:
    most = [event_json(n=n) for n in range(MAX_FRAME_EVENTS)]
    assert len(decode_record(encode_frame(most), NOW)[0]) == MAX_FRAME_EVENTS
    value = encode_frame([*most, event_json()])
    events, (refusal,) = decode_record(value, NOW)
    assert not events
    assert (refusal.raw, refusal.place) == (value, None)
    assert refusal.reason == "the frame has 1001 events, the limit is 1000"


def test_a_frame_of_the_most_bytes_and_one_of_more() -> None:
    part = event_json(mine="x" * 200_000)
    room = MAX_FRAME_BYTES - len(encode_frame([part] * 4 + [event_json(mine="")]))
    largest = encode_frame([part] * 4 + [event_json(mine="x" * room)])
    assert len(largest) == MAX_FRAME_BYTES
    assert len(decode_record(largest, NOW)[0]) == 5
    larger = largest + b" "
    events, (refusal,) = decode_record(larger, NOW)
    assert not events
    assert refusal == (larger, "the frame has 900001 bytes, the limit is 900000", None)


@pytest.mark.parametrize("framed", [True, False])
@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}"), ('["]",', ',"["]')])
def test_depth_is_counted_within_the_event(framed: bool, left: str, right: str) -> None:
    def attempt(levels: int) -> int:
        raw = event_json(mine="@").replace(b'"@"', nested(levels, left, right).encode())
        return len(decode_record(encode_frame([raw]) if framed else raw, NOW)[0])

    assert attempt(MAX_DEPTH - 1) == 1
    assert attempt(MAX_DEPTH) == 0


def test_invalid_utf_8_is_refused_in_an_unused_field() -> None:
    raw = event_json(mine="@").replace(b"@", b"\xff")
    assert len(decode_record(raw, NOW)[1]) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "0199c82c-c000-7abc-8def-0123456789ag", "0199c82cc-000-7abc-8def-0123456789ab",
        "0199c82c-c000-7abc-8def-0123456789a", "0199c82c-c000-7abc-8def-0123456789abc", "é" * 36,
    ],
)  # fmt: skip
def test_an_id_of_nearly_the_right_form_is_refused(wrong: str) -> None:
    good, bad = event_json(), event_json(id=wrong)
    assert [each is None for each in decode_records([good, bad, good], [NOW] * 3)] == [0, 1, 0]
    events, (refusal,) = decode_record(encode_frame([good, bad, good]), NOW)
    assert (len(events), refusal.place) == (2, 1)
    assert refusal.reason.startswith("id: ")


def test_ids_of_another_length_do_not_make_up_for_each_other() -> None:
    """All of them together have the right form."""
    long, short = BASE["id"] + "0", BASE["id"][1:]
    values = [event_json(id=each) for each in (long, short)]
    assert decode_records(values, [NOW] * 2) == [None, None]


@pytest.mark.parametrize("form", [BASE["id"].upper(), BASE["id"].replace("-", "")])
def test_other_forms_of_an_id_are_as_good(form: str) -> None:
    value = event_json(id=form)
    assert None not in decode_records([value, value], [NOW] * 2)
    assert len(decode_record(value, NOW)[0]) == 1


def test_event_bytes_are_the_original_ones() -> None:
    spaced = b'{ "mine": 1e1, ' + event_json(id=new_id())[1:]
    neighbours = [b'"no event"', b"{}", b'{"id":7}', event_json(confidence=7)]
    value = encode_frame([event_json(n=1), *neighbours, spaced])
    events, _refused = decode_record(value, NOW)
    found = EventBytes(value)
    assert [found.of(event) for event in events] == [event_json(n=1), spaced]
    assert EventBytes(value).of(events[1]) == spaced
    assert EventBytes(spaced).of(decode_record(spaced, NOW)[0][0]) == spaced


def test_event_bytes_of_an_event_in_which_a_field_stands_twice() -> None:
    twice = event_json(n=1)[:-1] + b',"confidence":7,"confidence":0.5}'
    parts = [twice, event_json(n=2), twice, event_json(n=3)]
    events, refused = decode_record(encode_frame(parts), NOW)
    assert not refused
    found = EventBytes(encode_frame(parts))
    assert [found.of(event) for event in events] == parts


def test_event_bytes_distinguish_events_of_one_id() -> None:
    parts = [event_json(task_id="a"), event_json(task_id="b")]
    value = encode_frame(parts)
    found = EventBytes(value)
    assert [found.of(event) for event in decode_record(value, NOW)[0]] == parts


def test_a_frame_is_split_without_touching_its_parts() -> None:
    parts = [b'{"a" : 1.50}', b"[ ]", b"null"]
    assert split_frame(encode_frame(parts)) == parts


def test_the_decoder_knows_every_field_of_the_contract() -> None:
    (event,), _refused = decode_record(event_json(), NOW)
    assert set(event.__struct_fields__) == set(Event.__annotations__)  # type: ignore[attr-defined]
