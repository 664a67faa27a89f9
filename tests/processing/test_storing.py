"""The sinks without their databases: what is stored of a record, and what is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.frames import encode_frame
from processing.records import RecordBatch
from processing.storing import Unpacked, unpack_events, unpack_thresholds

NOW = 1_760_000_000_000
BASE: dict[str, Any] = {
    "id": "0199c82c-c000-7abc-8def-0123456789ab",
    "event_type": "task_complete",
    "tenant": "acme",
    "workflow_type": "refund",
    "workflow_id": "w1",
    "timestamp": NOW,
}
THRESHOLD = {
    "tenant": "acme", "workflow_type": "refund", "path": "workflow_type=refund", "speculate": 0.9,
    "suggest": 0.68, "epoch": 3, "offset": 4, "outcomes": 5, "learner": "td", "at": NOW,
    "deviation": None,
}  # fmt: skip
HUGE = orjson.dumps({**BASE, "mine": "@"}).replace(b'"@"', b"1e400")
"""An event that can be learned from and not be stored: no double holds its number."""


def event(n: int, **fields: Any) -> dict[str, Any]:
    return {**BASE, "mine": {"n": n, "x": [None, "é"]}, **fields}


def batch(*values: bytes | None, begin: int = 0) -> RecordBatch:
    offsets = list(range(begin, begin + len(values)))
    end = begin + len(values)
    keys = [b"k%d" % n for n in offsets]
    return RecordBatch("t", 1, begin, end, offsets, [NOW] * len(values), keys, list(values))


@given(st.lists(st.booleans(), max_size=6))
def test_the_good_events_of_a_frame_in_order_and_the_bad_ones_by_place(good: list[bool]) -> None:
    events = [event(n) if fine else event(n, confidence=7) for n, fine in enumerate(good)]
    records, refused = unpack_events(encode_frame(map(orjson.dumps, events)), NOW)
    assert list(records) == [events[n] for n, fine in enumerate(good) if fine]
    assert [(refusal.place, orjson.loads(refusal.raw)) for refusal in refused] == [
        (n, events[n]) for n, fine in enumerate(good) if not fine
    ]


def test_a_single_object_is_stored_as_it_came() -> None:
    assert unpack_events(orjson.dumps(event(1)), NOW) == ((event(1),), ())


@pytest.mark.parametrize("value", [None, b"", b"nonsense", b"[", orjson.dumps({})])
def test_a_record_that_holds_no_event_is_refused_once(value: bytes | None) -> None:
    records, refused = unpack_events(value, NOW)
    assert not records
    assert [(refusal.raw, refusal.place) for refusal in refused] == [(value or b"", None)]


def test_a_number_that_cannot_be_stored_is_refused_alone() -> None:
    bad = orjson.dumps(event(1, confidence=7))
    value = encode_frame([orjson.dumps(event(0)), bad, HUGE, orjson.dumps(event(3))])
    records, refused = unpack_events(value, NOW)
    assert list(records) == [event(0), event(3)]
    assert sorted((refusal.place, refusal.raw) for refusal in refused) == [(1, bad), (2, HUGE)]
    records, (refusal,) = unpack_events(HUGE, NOW)
    assert (list(records), refusal.place, refusal.raw) == ([], None, HUGE)
    assert refusal.reason.startswith("not JSON: ")


def test_a_threshold_and_its_tombstone() -> None:
    assert unpack_thresholds(orjson.dumps({**THRESHOLD, "more": 1}), NOW) == ((THRESHOLD,), ())
    assert unpack_thresholds(None, NOW) == ((), ())


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"{}", b"[]", b"\xff", b'"\xff"', b"[" * 100_000,
     orjson.dumps({**THRESHOLD, "speculate": "0.9"}), orjson.dumps({**THRESHOLD, "at": None})],
    ids=lambda value: str(value[:12]),
)  # fmt: skip
def test_what_is_no_threshold_is_refused(value: bytes) -> None:
    records, (refusal,) = unpack_thresholds(value, NOW)
    assert not records
    assert refusal.raw == value
    assert refusal.reason.startswith("not a threshold: ")


def test_records_remember_where_they_came_from() -> None:
    unpacked = Unpacked()
    first = batch(encode_frame(map(orjson.dumps, [event(0), event(1)])), b"bad", begin=10)
    second = batch(orjson.dumps(event(2)), begin=12)
    unpacked.add(first, 0, unpack_events, "g")
    unpacked.add(second, 0, unpack_events, "g")
    assert list(unpacked.records) == [event(0), event(1), event(2)]
    assert unpacked.sources == [(first, 0), (first, 0), (second, 0)]
    (letter,) = unpacked.dead_letters
    assert (letter.key, letter.value) == (b"k11", b"bad")
    assert dict(letter.headers)["__connect.errors.offset"] == b"11"


def test_what_was_stored_before_is_left_out() -> None:
    unpacked = Unpacked()
    records = batch(*[orjson.dumps(event(n)) for n in range(4)], begin=10)
    unpacked.add(records, 12, unpack_events, "g")
    assert list(unpacked.records) == [event(2), event(3)]
    assert [position for _batch, position in unpacked.sources] == [2, 3]


def test_a_record_that_the_database_refuses_becomes_a_dead_letter() -> None:
    unpacked = Unpacked()
    unpacked.add(batch(b"bad", orjson.dumps(event(0)), begin=5), 0, unpack_events, "g")
    letter = unpacked.refuse(0, "no partition for it", "g")
    headers = dict(letter.headers)
    assert orjson.loads(letter.value) == event(0)
    assert (letter.key, headers["__connect.errors.offset"]) == (b"k6", b"6")
    assert headers["__connect.errors.exception.message"] == b"no partition for it"
    assert headers["headstart.group"] == b"g"


def test_a_threshold_with_a_number_beyond_64_bits_becomes_a_dead_letter_too() -> None:
    unpacked = Unpacked()
    value = orjson.dumps(THRESHOLD).replace(b'"offset":4', b'"offset":' + b"9" * 30)
    unpacked.add(batch(value), 0, unpack_thresholds, "g")
    assert b"9" * 30 in unpacked.refuse(0, "bigint out of range", "g").value
