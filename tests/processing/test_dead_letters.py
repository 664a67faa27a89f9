"""Dead letters: the original bytes, where they came from, and why."""

from __future__ import annotations

import pytest

from headstart.events.frames import MAX_FRAME_BYTES
from processing.records.batch import RecordBatch
from processing.records.dead_letters import dead_letter
from processing.records.decode import Rejection

BATCH = RecordBatch(
    "headstart.events", 3, 40, 50, [41, 45], [1_000, 2_000], [b"k\x1f1", None], [b"a", b"b"]
)


def test_a_refused_event_of_a_frame() -> None:
    letter = dead_letter(BATCH, 0, Rejection(b'{"a":1}', "id: is missing", 7), "the-group")
    assert letter.key == b"k\x1f1"
    assert letter.value == b'{"a":1}'
    assert dict(letter.headers) == {
        "__connect.errors.topic": b"headstart.events",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"41",
        "__connect.errors.exception.message": b"id: is missing",
        "headstart.group": b"the-group",
        "headstart.timestamp": b"1000",
        "headstart.frame.place": b"7",
    }


def test_a_refused_record_has_no_place() -> None:
    letter = dead_letter(BATCH, 1, Rejection(b"", "the record has no value", None), "g")
    headers = dict(letter.headers)
    assert letter.key is None
    assert headers["__connect.errors.offset"] == b"45"
    assert headers["headstart.timestamp"] == b"2000"
    assert "headstart.frame.place" not in headers


def test_the_first_place_of_a_frame_is_named_too() -> None:
    assert dict(dead_letter(BATCH, 0, Rejection(b"", "x", 0), "g").headers)[
        "headstart.frame.place"
    ] == b"0"  # fmt: skip


@pytest.mark.parametrize(("size", "kept"), [(0, 0), (1, 1), (100, 100), (101, 100), (5_000, 100)])
def test_a_dead_letter_too_large_for_a_record_is_cut_and_marked(size: int, kept: int) -> None:
    raw = b"x" * (MAX_FRAME_BYTES - 100 + size)
    letter = dead_letter(BATCH, 0, Rejection(raw, "too large", None), "g")
    assert letter.value == raw[: MAX_FRAME_BYTES - 100 + kept]
    cut = dict(letter.headers).get("headstart.truncated.from")
    assert cut == (None if kept == size else str(len(raw)).encode())


def test_a_long_reason_in_any_script_is_bounded() -> None:
    letter = dead_letter(BATCH, 0, Rejection(b"", "✓" * 5_000, None), "g")
    assert dict(letter.headers)["__connect.errors.exception.message"].decode() == "✓" * 1_000
