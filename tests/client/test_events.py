"""Ids and stamps: an id is a UUIDv7 that sorts by time, a stamp fills in what is missing."""

from __future__ import annotations

import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.events.schema import InvalidEvent, _Ids, field_name, new_id, stamp

milliseconds = st.integers(0, 2**48 - 1)


@given(milliseconds)
def test_an_id_is_a_version_7_uuid_of_the_rfc_variant(now_ms: int) -> None:
    parsed = uuid.UUID(new_id(now_ms))
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122


@given(milliseconds)
def test_an_id_begins_with_its_time(now_ms: int) -> None:
    assert uuid.UUID(new_id(now_ms)).int >> 80 == now_ms


@given(milliseconds, milliseconds)
def test_ids_sort_by_time(one: int, other: int) -> None:
    if one != other:
        assert (new_id(one) < new_id(other)) == (one < other)


def test_an_id_without_a_time_has_the_time_of_now() -> None:
    before = time.time_ns() // 1_000_000
    at = uuid.UUID(new_id()).int >> 80
    assert before <= at <= time.time_ns() // 1_000_000


def test_ids_are_random_in_every_bit_in_each_millisecond() -> None:
    ids = [uuid.UUID(new_id(1_760_000_000_000 + n)).int for n in range(2_000)]
    assert len(set(ids)) == len(ids)
    ones = zeros = 0
    for value in ids:
        ones |= value
        zeros |= ~value
    fixed = ~(ones & zeros) & ((1 << 80) - 1)
    assert fixed == (0xF << 76) | (0x3 << 62)  # version and variant, nothing else


def test_ids_of_one_millisecond_grow() -> None:
    ids = [new_id(1_760_000_000_000) for _ in range(5_000)]
    assert ids == sorted(set(ids))
    assert {uuid.UUID(each).int >> 80 for each in ids} == {1_760_000_000_000}


def test_ids_and_events_of_now_grow() -> None:
    ids = [new_id() if n % 2 else stamp({})["id"] for n in range(5_000)]
    assert ids == sorted(set(ids))


def test_ids_grow_in_every_thread_and_are_all_different() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [new_id() for _ in range(2_000)], range(8)))
    assert all(ids == sorted(ids) for ids in found)
    assert len({each for ids in found for each in ids}) == 16_000


def test_ids_grow_where_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.time_ns() + 60_000_000_000
    steps = iter([0, 5, 5, 2, 5, 1, 6, 6])
    monkeypatch.setattr(time, "time_ns", lambda: begun + 1_000_000 * next(steps))
    ids = [new_id() for _ in range(8)]
    assert ids == sorted(set(ids))


def test_a_clock_that_is_set_back_for_good_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 4_000_000_000_000 * 1_000_000)
    new_id()
    monkeypatch.undo()
    assert uuid.UUID(new_id()).int >> 80 <= time.time_ns() // 1_000_000


def test_a_used_up_millisecond_goes_on_in_the_next() -> None:
    ids = _Ids(Random(1))
    first = ids.take(7, 0)
    ids._tail = (1 << 74) - 1
    second = ids.take(7, 10)
    assert uuid.UUID(second).int >> 80 == 8
    assert first < second < ids.take(7, 10)


def test_a_fork_has_random_bits_of_its_own() -> None:
    ids = []
    for _ in range(2):
        read, write = os.pipe()
        if not (child := os.fork()):
            os.write(write, new_id(7).encode())
            os._exit(0)
        os.waitpid(child, 0)
        ids.append(os.read(read, 36).decode())
        os.close(read)
        os.close(write)
    assert len({*ids, new_id(7)}) == 3


def test_the_text_of_an_id_is_the_canonical_one() -> None:
    text = new_id(7)
    assert text == str(uuid.UUID(text))


def test_stamp_fills_in_what_is_missing_and_leaves_its_argument_alone() -> None:
    fields = {"event_type": "task_complete", "tenant": None, "id": None, "timestamp": None}
    given_fields = dict(fields)
    before = time.time_ns() // 1_000_000
    event = stamp(fields)
    assert fields == given_fields
    assert event["tenant"] == "default"
    assert uuid.UUID(event["id"]).version == 7
    assert before <= event["timestamp"] <= time.time_ns() // 1_000_000
    assert event["event_type"] == "task_complete"


def test_stamp_keeps_what_is_given() -> None:
    fields = {"id": "x", "timestamp": 0, "tenant": "", "mine": 1}
    assert stamp(fields) == fields


@pytest.mark.parametrize(
    ("parent", "key", "name"),
    [
        ("", "tenant", "tenant"),
        ("data", "context", "data.context"),
        ("data.concepts", 3, "data.concepts.3"),
        ("data", "a\nb", r"data.'a\nb'"),
        ("", "", "''"),
    ],
)
def test_field_names_are_dotted_and_safe_to_print(parent: str, key: object, name: str) -> None:
    assert field_name(parent, key) == name


def test_a_field_name_is_never_long() -> None:
    assert len(field_name("", "x" * 10_000)) == 64


def test_the_message_of_an_invalid_event_names_its_field() -> None:
    error = InvalidEvent("data.result", "is odd")
    assert (str(error), error.field, error.reason) == (
        "data.result: is odd",
        "data.result",
        "is odd",
    )
    assert str(InvalidEvent("", "is odd")) == "is odd"
