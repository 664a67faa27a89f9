"""The sinks without their databases: what is stored of a record, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.events.frames import encode_frame
from processing.records.batch import RecordBatch
from processing.records.decode import Rejection
from processing.records.dlq_limits import Slice
from processing.records.sink_lines import SinkBatch, Unpack, unpack_events, unpack_thresholds
from tests.sample_event import BASE, NOW


def event(n: int, **fields: Any) -> dict[str, Any]:
    return {**BASE, "mine": {"n": n, "x": [None, "é"]}, **fields}


def batch(*values: bytes | None, begin: int = 0) -> RecordBatch:
    offsets = list(range(begin, begin + len(values)))
    end = begin + len(values)
    keys = [b"k%d" % n for n in offsets]
    return RecordBatch("t", 1, begin, end, offsets, [NOW] * len(values), keys, list(values))


def unpack_one(value: bytes | None) -> tuple[Sequence[bytes], Sequence[Rejection]]:
    (found,) = unpack_events([value], [NOW])
    return found


@given(st.lists(st.booleans(), max_size=6))
def test_the_good_events_of_a_frame_in_order_and_the_bad_ones_by_place(good: list[bool]) -> None:
    events = [event(n) if fine else event(n, confidence=7) for n, fine in enumerate(good)]
    records, refused = unpack_one(encode_frame(map(orjson.dumps, events)))
    assert list(map(orjson.loads, records)) == [events[n] for n, fine in enumerate(good) if fine]
    assert [(refusal.place, orjson.loads(refusal.raw)) for refusal in refused] == [
        (n, events[n]) for n, fine in enumerate(good) if not fine
    ]


def test_a_single_object_is_stored_as_it_came() -> None:
    value = b" " + orjson.dumps(event(1)) + b"\n"
    assert unpack_one(value) == ((value,), ())


@pytest.mark.parametrize("value", [None, b"", b"nonsense", b"[", orjson.dumps({})])
def test_a_record_that_holds_no_event_is_refused_once(value: bytes | None) -> None:
    records, refused = unpack_one(value)
    assert not records
    assert [(refusal.raw, refusal.place) for refusal in refused] == [(value or b"", None)]


def test_a_number_that_no_double_holds_is_refused() -> None:
    huge = orjson.dumps({**BASE, "mine": "@"}).replace(b'"@"', b"1e400")
    found, (refusal,) = unpack_one(huge)
    assert (found, refusal.raw) == ((), huge)


def test_a_tombstone_of_a_threshold_is_nothing_to_store() -> None:
    assert unpack_thresholds([b"{}", None], [NOW, NOW]) == [((b"{}",), ()), ((), ())]


RECORDS = [
    orjson.dumps(event(1)),
    orjson.dumps(BASE),
    b" " + orjson.dumps(BASE) + b"\n",
    orjson.dumps({**BASE, "confidence": 7}),
    orjson.dumps({**BASE, "timestamp": NOW + 10**9}),
    encode_frame(map(orjson.dumps, [BASE, event(2, confidence=7), event(3)])),
    b"nonsense",
    None,
]


@given(st.lists(st.sampled_from(RECORDS), max_size=8))
def test_a_record_holds_what_it_holds_whatever_is_beside_it(values: list[bytes | None]) -> None:
    together = unpack_events(values, [NOW] * len(values))
    assert list(together) == [unpack_one(value) for value in values]


def encode(raws: Sequence[bytes]) -> list[bytes]:
    """A sink that wants an `n`."""
    for raw in raws:
        if "n" not in (mine := orjson.loads(raw).get("mine", {})):
            raise ValueError(f"no n in {mine}")
    return [b"%d" % orjson.loads(raw)["mine"]["n"] for raw in raws]


def unpack(*batches: RecordBatch, how: Unpack = unpack_events, at_once: int = 128) -> SinkBatch:
    unpacked = SinkBatch()
    for each in batches:
        for begin in range(0, len(each), at_once):
            run = range(begin, min(begin + at_once, len(each)))
            unpacked.add(each, run, how, encode, "g")
    return unpacked


@given(st.lists(st.sampled_from(RECORDS), max_size=8), st.integers(1, 8))
def test_nothing_depends_on_how_many_are_unpacked_at_once(
    values: list[bytes | None], at_once: int
) -> None:
    of = batch(*values)
    found, expected = unpack(of, at_once=at_once), unpack(of, at_once=1)
    assert found.lines == expected.lines
    assert found.records == expected.records
    assert [place for _batch, place in found.sources] == [
        place for _batch, place in expected.sources
    ]
    assert sorted(map(repr, found.dead_letters)) == sorted(map(repr, expected.dead_letters))


def test_lines_remember_where_they_came_from() -> None:
    first = batch(encode_frame(map(orjson.dumps, [event(0), event(1)])), b"bad", begin=10)
    second = batch(orjson.dumps(event(2)), begin=12)
    unpacked = unpack(first, second)
    assert unpacked.lines == [b"0", b"1", b"2"]
    assert [orjson.loads(raw) for raw in unpacked.records] == [event(0), event(1), event(2)]
    assert unpacked.sources == [(first, 0), (first, 0), (second, 0)]
    (letter,) = unpacked.dead_letters
    assert (letter.key, letter.value) == (b"k11", b"bad")
    assert dict(letter.headers)["__connect.errors.offset"] == b"11"


def test_an_event_that_cannot_be_encoded_is_a_dead_letter_alone() -> None:
    bad = orjson.dumps(event(1, mine={}))
    frame = encode_frame([orjson.dumps(event(0)), bad, orjson.dumps(event(2))])
    unpacked = unpack(batch(frame))
    assert unpacked.lines == [b"0", b"2"]
    assert len(unpacked.records) == len(unpacked.sources) == 2
    (letter,) = unpacked.dead_letters
    assert letter.value == bad
    assert dict(letter.headers)["__connect.errors.exception.message"] == b"no n in {}"


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_pieces_are_all_lines_in_order_and_end_with_records(most: int) -> None:
    frames = [encode_frame(orjson.dumps(event(n)) for n in range(size)) for size in (2, 0, 3, 1)]
    first, second = batch(b"bad", *frames, begin=10), batch(*frames, begin=3)
    first.end, second.partition = 20, second.partition + 1
    unpacked = unpack(first, second)
    parts = [Slice(first, 1, 4), Slice(first, 4, 5), Slice(second, 0, 4)]
    lines, sources, reached = list[bytes](), list[Any](), dict[int, int]()
    for slices, piece in unpacked.pieces(parts, most):
        places = [(each.batch, at) for each in slices for at in range(each.begin, each.end)]
        assert {(id(held), at) for held, at in piece.sources} <= {(id(b), at) for b, at in places}
        assert len(piece.lines) < most + 3
        assert not piece.dead_letters
        lines += piece.lines
        sources += places
        reached |= {each.batch.partition: each.reached for each in slices}
    assert lines == unpacked.lines
    assert sources == [(first, at) for at in range(1, 5)] + [(second, at) for at in range(4)]
    assert reached == {first.partition: 20, second.partition: 7}


def test_what_is_touched_is_computed_once_for_a_batch_and_for_each_piece_of_it() -> None:
    asked = list[Sequence[bytes]]()

    def touched(lines: Sequence[bytes]) -> list[bytes]:
        asked.append([*lines])
        return [*lines]

    held = batch(*(orjson.dumps(event(n)) for n in range(3)))
    unpacked = unpack(held)
    pieces = [piece for _, piece in unpacked.pieces([Slice(held, 0, 3)], 2)]
    for each in (unpacked, unpacked, *pieces, *pieces):
        assert each.touched(touched) == each.lines
    assert asked == [[b"0", b"1", b"2"], [b"0", b"1"], [b"2"]]
    unpacked.add(batch(orjson.dumps(event(3))), range(1), unpack_events, encode, "g")
    assert unpacked.touched(touched) == [b"0", b"1", b"2", b"3"]


def test_a_line_that_the_database_refuses_becomes_a_dead_letter() -> None:
    unpacked = unpack(batch(b"bad", orjson.dumps(event(0)), begin=5))
    letter = unpacked.refuse(0, "no partition for it", "g")
    headers = dict(letter.headers)
    assert orjson.loads(letter.value) == event(0)
    assert (letter.key, headers["__connect.errors.offset"]) == (b"k6", b"6")
    assert headers["__connect.errors.exception.message"] == b"no partition for it"
    assert headers["headstart.group"] == b"g"
