"""Rows as bytes: what goes in comes out, and the version can be read and replaced."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from learners.policy import ThresholdPair
from processing.state.counters import stored
from processing.state.packed_state import ContextNumbers, unpacked
from processing.state.rows import (
    PARTITION_KEY,
    ContextRow,
    OpenPredictionRow,
    TaskStateRow,
    context_key,
    context_of,
    decode_context,
    decode_partition,
    decode_start,
    deleted,
    encode_context,
    encode_packed,
    encode_partition,
    encode_start,
    is_old_start,
    is_row,
    old_start_key,
    start_key,
    version,
    with_version,
    without_type,
)

unsigned = st.integers(0, 2**64 - 1)
signed = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
name = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x1f"), min_size=1)
state = st.lists(st.floats(allow_nan=False), max_size=8).map(tuple)
contexts = st.builds(
    ContextRow,
    epoch=unsigned, offset=signed, at=signed, outcomes=unsigned, speculated=unsigned,
    hits=unsigned, policy_version=st.integers(0, 2**15 - 1), learner=text, state=state,
    gain=st.just(0.0), cost=st.just(0.0), counts=st.just(()),
)  # fmt: skip
starts = st.builds(
    OpenPredictionRow,
    timestamp=signed, confidence=st.floats(0, 1), tool_id=st.none() | text, mode=text,
    speculated=st.booleans(), levels=st.lists(st.none() | text, max_size=4).map(tuple),
    user_id=st.none() | text,
)  # fmt: skip
partitions = st.builds(
    TaskStateRow, clock=signed, outcomes=unsigned, unresolved=unsigned, unmatched=unsigned
)


counted = st.builds(
    ContextRow._replace, contexts,
    gain=st.floats(0, 1e15), cost=st.floats(0, 1e15),
    counts=st.lists(unsigned, min_size=10, max_size=10).map(tuple),
)  # fmt: skip


@given(contexts | counted)
def test_a_context_comes_back(row: ContextRow) -> None:
    raw = encode_context(row)
    assert decode_context(raw) == row
    assert version(raw) == (row.epoch, row.offset)


def test_a_state_comes_back_to_the_bit() -> None:
    odd = (0.1 + 0.2, -0.0, 5e-324, float("inf"), 1 / 3)
    row = ContextRow(1, 2, 3, 4, 5, 6, 7, "é", odd)
    again = decode_context(encode_context(row))
    assert struct.pack("<5d", *again.state) == struct.pack("<5d", *odd)
    assert encode_context(again) == encode_context(row)


numbers = st.builds(
    ContextNumbers,
    state=state, at=signed, gain=st.floats(0, 1e15), cost=st.floats(0, 1e15),
    counts=st.lists(st.integers(0, 2**60), min_size=13, max_size=13),
)  # fmt: skip


@given(numbers, unsigned, signed, text, st.integers(0, 2**15 - 1), st.floats(0, 1))
def test_packed_numbers_come_back_and_make_the_same_row(
    loose: ContextNumbers, epoch: int, offset: int, learner: str, version: int, speculate: float
) -> None:
    answer = ThresholdPair(speculate, speculate / 2)
    words = loose.packed(answer)
    assert unpacked(words) == (loose, answer)
    outcomes, speculated, hits, rest = stored(loose.counts)
    row = ContextRow(
        epoch, offset, loose.at, outcomes, speculated, hits, version, learner, loose.state,
        loose.gain, loose.cost, rest,
    )  # fmt: skip
    assert encode_packed(epoch, offset, learner, version, words) == encode_context(row)


@given(starts, unsigned, signed)
def test_a_start_comes_back(start: OpenPredictionRow, epoch: int, offset: int) -> None:
    raw = encode_start(start, epoch, offset)
    assert decode_start(raw) == start
    assert version(raw) == (epoch, offset)


@given(partitions, unsigned, signed)
def test_the_partitions_row_comes_back(row: TaskStateRow, epoch: int, offset: int) -> None:
    raw = encode_partition(row, epoch, offset)
    assert decode_partition(raw) == row
    assert version(raw) == (epoch, offset)


@given(contexts, starts, partitions, unsigned, signed)
def test_a_row_of_another_version_is_equivalent(
    context: ContextRow, start: OpenPredictionRow, partition: TaskStateRow, epoch: int, offset: int
) -> None:
    moved = with_version(encode_context(context), epoch, offset)
    assert decode_context(moved) == context._replace(epoch=epoch, offset=offset)
    assert with_version(encode_start(start, 1, 2), epoch, offset) == (
        encode_start(start, epoch, offset)
    )
    assert with_version(encode_partition(partition, 1, 2), epoch, offset) == (
        encode_partition(partition, epoch, offset)
    )


@given(name, name)
def test_the_key_of_a_context_identifies_it(tenant: str, path: str) -> None:
    assert context_of(context_key(tenant, path)) == (tenant, path)


@given(st.tuples(name, name, name, name), st.tuples(name, name, name, name))
def test_starts_have_keys_of_their_own(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (start_key(*one) == start_key(*other)) == (one == other)


@given(name, name, name, name)
def test_a_starts_key_gives_its_key_of_earlier_versions(
    tenant: str, workflow_type: str, workflow: str, task: str
) -> None:
    key, old = (
        start_key(tenant, workflow_type, workflow, task),
        old_start_key(tenant, workflow, task),
    )
    assert without_type(key) == old
    assert is_old_start(old)
    assert not is_old_start(key)


@given(name, name, name)
def test_keys_of_different_kinds_never_meet(tenant: str, other: str, task: str) -> None:
    keys = {context_key(tenant, other), start_key(tenant, other, other, task), PARTITION_KEY}
    assert len({key[:1] for key in keys}) == 3


def test_foreign_changelog_records_are_not_rows() -> None:
    for row in (None, deleted(0, 0), deleted(4_000_000_000, -1), with_version(b"x" * 40, 7, 9)):
        assert is_row(b"key", row)
        assert not is_row(None, row)
    for row in (b"", b"x" * 15, b"x" * 16, b'{"tenant": "t", "mode": "act"}', deleted(7, -2)):
        assert not is_row(b"key", row)
