"""The frames of packed runs: exact, deterministic, and refused when damaged."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sinks.postgres.packing.trace_format import (
    MAX_UNPACKED,
    PackedEvent,
    TraceCodec,
    TraceDamaged,
    TraceDictionary,
    dictionary_of,
    in_order,
)
from sinks.postgres.packing.training import MIN_RUNS, SampledRun, common_samples, train_dictionary

TEXTS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
JSONS = st.sampled_from(
    ["{}", '{"a": 1.0, "b": "\\t\\n"}', '{"wide": 123456789012345678901234567890}']
)
EVENTS = st.builds(
    PackedEvent, st.integers(0, 253_402_300_799_999), st.uuids().map(str), st.just("task_complete"),
    TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, st.none() | st.booleans(),
    st.none() | st.floats(0, 1, width=32), JSONS, st.none() | JSONS,
)  # fmt: skip


DATA = """{"query": "canary-USER order", "prediction": {"mode": "speculative",
 "reasoning": "follows the last two calls"}}""".replace("\n", "")


def runs(users: int, count: int = 200) -> list[SampledRun]:
    """Runs that share their keys and tools; each query is one user's own."""
    draw = random.Random(1)

    def made(number: int, step: int) -> PackedEvent:
        own = str(UUID(int=draw.getrandbits(128)))
        at, user = 1_750_000_000_000 + number * 1_000 + step, number % users
        return PackedEvent(
            at, own, "task_complete", f"step-{step}", f"user-{user}", "support", None,
            "refund_order", True, 0.5, DATA.replace("USER", str(user)), None,
        )  # fmt: skip

    return [SampledRun(f"w{n}", [made(n, step) for step in range(8)]) for n in range(count)]


@given(st.lists(EVENTS, max_size=5))
def test_events_come_back_as_they_were(events: list[PackedEvent]) -> None:
    trace = TraceCodec().pack(events)
    assert TraceCodec().unpack(trace.frame, trace.ids) == in_order(events)
    assert TraceCodec().pack(events[::-1] + events) == TraceCodec().pack(in_order(events))


def test_a_frame_names_its_dictionary_and_is_smaller_with_it() -> None:
    made = runs(9)
    content = train_dictionary(made, 40_000)
    assert content is not None
    assert content == train_dictionary(made, 40_000), "the same runs, the same dictionary"
    codec = TraceCodec(TraceDictionary(40_000, len(made), content))
    small, plain = codec.pack(made[0].events), TraceCodec().pack(made[0].events)
    assert len(small.frame) < 0.8 * len(plain.frame)
    assert (dictionary_of(small.frame), dictionary_of(plain.frame)) == (40_000, 0)
    assert codec.unpack(small.frame, small.ids) == codec.unpack(plain.frame, plain.ids)
    with pytest.raises(TraceDamaged, match="damaged zstd"):
        TraceCodec().unpack(small.frame, small.ids)


def test_what_few_users_have_in_common_is_in_no_dictionary() -> None:
    made = runs(100)  # two runs of each user
    content = train_dictionary(made, 40_000)
    assert content is not None
    for text in (content, *common_samples(made)):
        assert b"canary" not in text
        assert b"user-" not in text
    assert b"refund_order" in content
    assert b"reasoning" in content


def test_few_runs_or_users_have_no_text_in_a_dictionary() -> None:
    assert train_dictionary(runs(9, MIN_RUNS - 1), 40_000) is None
    for text in (train_dictionary(runs(2), 40_000) or b"", *common_samples(runs(2))):
        assert b"refund_order" not in text, "two users have nothing that is not private"


def test_a_bomb_is_refused_by_its_header() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(MAX_UNPACKED + 1))
    assert len(bomb) < 10_000
    with pytest.raises(TraceDamaged, match="declares 64,000,001 bytes"):
        TraceCodec().unpack(bomb, [])
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10))
    with pytest.raises(TraceDamaged, match="declares"):
        TraceCodec().unpack(unsized, [])


def test_damage_is_noticed() -> None:
    trace = TraceCodec().pack(runs(9)[0].events)
    frame, ids = trace.frame, trace.ids
    for wrong in (frame[:-1], frame + b"x", frame + frame, b"", b"no frame", frame[4:]):
        with pytest.raises(TraceDamaged):
            TraceCodec().unpack(wrong, ids)
    for place in range(len(frame)):
        flipped = bytearray(frame)
        flipped[place] ^= 1
        with pytest.raises(TraceDamaged):
            TraceCodec().unpack(bytes(flipped), ids)
    for other in (ids[:-1], [*ids, ids[0]]):
        with pytest.raises(TraceDamaged, match="not the events"):
            TraceCodec().unpack(frame, other)
