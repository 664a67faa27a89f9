"""Frames: nothing lost, order kept, and never above the limits."""

from __future__ import annotations

from itertools import pairwise

import orjson
from hypothesis import given
from hypothesis import strategies as st

from headstart.events.frames import MAX_FRAME_BYTES, cut_frames, encode_frame


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_cutting_keeps_every_event_in_order(events: list[bytes], most: int) -> None:
    frames = list(cut_frames(events, most))
    assert [event for frame in frames for event in frame] == events
    assert all(1 <= len(frame) <= most for frame in frames)


@given(st.lists(st.sampled_from([1, 250_000, 299_998, 449_998, 449_999, 262_144]), max_size=12))
def test_a_frame_stays_within_its_bytes(sizes: list[int]) -> None:
    frames = list(cut_frames([b"x" * size for size in sizes]))
    assert [len(event) for frame in frames for event in frame] == sizes
    assert all(len(encode_frame(frame)) <= MAX_FRAME_BYTES for frame in frames)
    for frame, following in pairwise(frames):
        assert len(encode_frame([*frame, following[0]])) >= MAX_FRAME_BYTES  # cut no sooner


def test_frames_are_full_before_the_next_begins() -> None:
    events = [b"%d" % n for n in range(450)]
    assert [len(frame) for frame in cut_frames(events)] == [200, 200, 50]


def test_nothing_makes_no_frame() -> None:
    assert list(cut_frames([])) == []


def test_a_frame_is_a_json_array_of_its_events() -> None:
    events = [{"a": 1}, {"b": [2]}, {}]
    assert orjson.loads(encode_frame([orjson.dumps(event) for event in events])) == events
