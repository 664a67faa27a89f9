"""The record path gives what aiokafka's own path gives, on random sequences of record batches."""

from __future__ import annotations

import asyncio
import functools
import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import cramjam
import pytest
from aiokafka.consumer.fetcher import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchResult,
    PartitionRecords,
)
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.errors import CorruptRecordException
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from agents.consumer import fetch_to_batch as drain_module
from agents.consumer.fetch_to_batch import MAX_BYTES, to_record_batch
from processing.records.batch import RECORD_BYTES, RecordBatch
from processing.records.columnar import ColumnarRecordBatch
from processing.records.decode import decode_record
from tests.agents.record_batches import (
    ABORT,
    ATTRIBUTES_AT,
    COMMIT,
    COUNT_AT,
    CRC_AT,
    GZIP,
    HEADER_BYTES,
    LAST_DELTA_AT,
    NO_PRODUCER,
    Batch,
    Log,
    encode,
    with_section,
    write,
)
from topics.kafka import decompression
from topics.kafka import readable_batches as batches_module
from topics.kafka.decompression import decompressed
from topics.kafka.fetch_patch import RetainedRecords
from topics.kafka.limits import LARGEST_MS, MOST_HEADERS, MOST_RECORDS

TP = TopicPartition("source", 3)
FRESH = itertools.count(10**9, 100)
"""First offsets of logs whose bytes no other test fetches."""


def encode_varint(value: int) -> bytes:
    """Return a zigzag varint; aiokafka's own writes none of 64 bits."""
    left, encoded = value << 1 if value >= 0 else -value * 2 - 1, bytearray()
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*encoded, left))


@pytest.fixture(scope="module", params=["python", "compiled"], autouse=True)
def unpacking(request: pytest.FixtureRequest, compiled: Any) -> Iterator[str]:
    """Every test here is of both ways to unpack a fetch."""
    how = None if request.param == "python" else compiled
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(drain_module, "kernels", lambda: how)
        patching.setattr(drain_module, "MIN_COMPILED_BYTES", 0)
        yield request.param


TEXT = st.one_of(st.none(), st.binary(max_size=6), st.just(b"x" * 300))
HEADERS = st.lists(
    st.tuples(st.sampled_from(["headstart.group", "a", ""]), st.none() | st.binary(max_size=4)),
    max_size=3,
)
PRODUCER = st.sampled_from([NO_PRODUCER, 7, 8])


@st.composite
def data_batches(draw: st.DrawFn) -> Batch:
    deltas = sorted(draw(st.sets(st.integers(0, 12), max_size=8)))  # holes; none at all: emptied
    last = deltas[-1] if deltas else 0
    return Batch(
        tuple(
            (delta, draw(st.integers(0, 2**41)), draw(TEXT), draw(TEXT), draw(HEADERS))
            for delta in deltas
        ),
        last + draw(st.sampled_from([0, 0, 3])),
        gap=draw(st.sampled_from([0, 0, 0, 5])),
        codec=draw(st.sampled_from([0, 0, 1, 2, 3, 4])) if deltas else 0,
        producer=draw(PRODUCER),
    )


@st.composite
def markers(draw: st.DrawFn) -> Batch:
    key = draw(st.sampled_from([ABORT, COMMIT]))
    return Batch(
        ((0, 1, key, b"\0" * 6),),
        0,
        gap=0,
        producer=draw(st.sampled_from([7, 8])),
        control=True,
    )


def in_loop(test: Callable[..., None]) -> Callable[..., None]:
    """aiokafka's records of an assignment hold futures, so they are made where a loop runs."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def body() -> None:
            test(*args, **kwargs)

        asyncio.run(body())

    return run


def result(log: Log, position: int, isolation: int) -> tuple[FetchResult, Assignment]:
    assignment = Assignment([TP])
    state = assignment.state_value(TP)
    state.await_reset(-2)
    state.reset_to(position)
    records = PartitionRecords(
        TP,
        RetainedRecords(log.fetch(position)),
        log.aborted(position),
        position,
        None,
        None,
        True,
        isolation,
    )
    return (
        FetchResult(TP, assignment=assignment, partition_records=records, backoff=0),
        assignment,
    )


Seen = tuple[list[tuple[Any, ...]], int, bool]
"""Records (offset, timestamp, key, value, headers), the position after them, whether a CRC was
wrong."""


def stock(log: Log, position: int, isolation: int) -> Seen:
    """Consume record by record, as aiokafka's `getone` does."""
    fetched, assignment = result(log, position, isolation)
    records: list[Any] = []
    try:
        while fetched.has_more():
            record = fetched.getone()
            if record is not None:
                records.append(
                    (record.offset, record.timestamp, record.key, record.value, record.headers)
                )
    except CorruptRecordException:
        return records, assignment.state_value(TP).position, True
    return records, assignment.state_value(TP).position, False


def ours(log: Log, position: int, isolation: int, most_bytes: int = MAX_BYTES) -> Seen:
    """Drain until nothing is left, fetching again from the position as the fetch loop does."""
    records: list[Any] = []
    fetched, assignment = result(log, position, isolation)
    while True:
        if not fetched.has_more():
            fetched, assignment = result(log, position, isolation)
        try:
            batch = to_record_batch(fetched, most_bytes)
        except CorruptRecordException:
            assert not fetched.has_more(), "the rest would be taken without the corrupt batch"
            return records, assignment.state_value(TP).position, True
        begin, position = position, assignment.state_value(TP).position
        assert not fetched.has_more() or position > begin
        if batch is not None:
            assert (batch.topic, batch.partition) == TP
            assert (batch.begin, batch.end) == (begin, position)
            assert batch.offset == (batch.offsets or [batch.begin])[0]
            assert len(batch) == len(batch.values)
            assert all(batch.headers.values()), "only records that have headers are listed"
            headers = [tuple(batch.headers.get(offset, ())) for offset in batch.offsets]
            records.extend(
                zip(batch.offsets, batch.timestamps, batch.keys, batch.values, headers, strict=True)
            )
        if position in (begin, log.end):
            assert not fetched.has_more()
            return records, position, False


@settings(max_examples=600, deadline=None)
@given(
    batches=st.lists(st.one_of(data_batches(), data_batches(), markers()), max_size=8),
    first=st.integers(0, 2**40),
    into=st.integers(0, 25),
    isolation=st.sampled_from([READ_UNCOMMITTED, READ_COMMITTED]),
    most_bytes=st.sampled_from([1, 300, MAX_BYTES]),
)
@in_loop
def test_equal_to_the_stock_path(
    batches: list[Batch], first: int, into: int, isolation: int, most_bytes: int
) -> None:
    log = write(batches, first)
    position = first + into  # often within a batch
    expected = stock(log, position, isolation)
    event(f"records: {min(len(expected[0]), 3)}")
    assert ours(log, position, isolation, most_bytes) == expected


@settings(max_examples=600, deadline=None)
@given(
    batches=st.lists(data_batches(), min_size=1, max_size=3),
    changes=st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF])), max_size=3
    ),
)
@example(batches=[Batch(((0, 0, None, None), (1, 0, None, None)), 1, 0)], changes=[(1, 0x80)])
@example(
    batches=[Batch(((0, 9, None, None), (1, 9, None, None, [("a", b"a")])), 1, 0)],
    changes=[(10, 1), (14, 0x80)],
)
@in_loop
def test_records_that_are_malformed_are_read_as_aiokafka_reads_them(
    batches: list[Batch], changes: list[tuple[int, int]]
) -> None:
    """Or refused, whatever their checksum."""
    log = write(batches, 0)
    base, end, raw = log.batches[0]
    changed = bytearray(raw)
    for at, byte in changes:
        if HEADER_BYTES + at < len(raw) and not batches[0].codec:
            changed[HEADER_BYTES + at] = byte
    struct.pack_into(">I", changed, CRC_AT, calc_crc32c(bytes(changed[ATTRIBUTES_AT:])))
    log.batches[0] = (base, end, bytes(changed))
    found = outcome(log)
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(drain_module, "kernels", lambda: None)
        expected = outcome(log)
    event(f"refused: {expected is None}")
    assert found == expected


@pytest.mark.parametrize("codec", [0, 1, 4])
@in_loop
def test_a_header_whose_name_is_no_text_stops_nothing(codec: int) -> None:
    """No broker refuses it: the C API of librdkafka takes any bytes."""
    fields = [("a", b"1"), ("POISON\N{SNOWMAN}", None), ("b", None)]
    odd = Batch(((0, 9, b"k", None), (1, 9, None, b"v" * 300, fields)), 1, 0, codec=codec)
    log = write([data(0), odd, data(0)], 0)
    base, end, raw = log.batches[1]
    section = bytearray(raw[HEADER_BYTES:])
    if codec:
        section = bytearray(decompressed(codec, raw[HEADER_BYTES:]))
    at = section.index(b"POISON")
    section[at : at + 1] = b"\xff"
    log.batches[1] = base, end, with_section(raw, bytes(section))
    records, position, corrupt = ours(log, 0, READ_UNCOMMITTED)
    assert (position, corrupt) == (4, False)
    headers = [("a", b"1"), ("?OISON???", None), ("b", None)]
    assert [record[0] for record in records] == [0, 1, 2, 3]
    assert records[2][1:] == (9, None, b"v" * 300, tuple(headers))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@in_loop
def test_a_batch_that_unpacks_to_too_much_is_one_record(codec: int) -> None:
    """Its bytes, which every reader refuses; the records around it are processed."""
    bomb = Batch(((0, 9, b"k", b"0" * 70_000), (3, 9, b"k", b"1" * 70_000)), 3, 0, codec=codec)
    log = write([data(0), bomb, data(0, 1, codec=codec)], 0)
    for most, expected in ((140_100, [0, 1, 4, 5, 6]), (139_000, [0, 1, 5, 6])):
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(decompression, "MOST_BYTES", most)
            records, position, corrupt = ours(log, 0, READ_UNCOMMITTED)
        assert (position, corrupt) == (7, False)
        assert [record[0] for record in records] == expected
    assert records[1][1:] == (9, None, log.batches[1][2], ())
    assert (records[1][3].first, records[1][3].end) == (1, 5)
    assert reasons_of(records[1]) == ["the batch unpacks to more than 139,000 bytes"]


def reasons_of(record: Any) -> list[str]:
    """Return why what was read as one record is a dead letter."""
    events, refused = decode_record(record[3], record[1])
    assert not events
    return [each.reason for each in refused]


def one_record_of(log: Log, place: int = 1) -> None:
    """Assert that a batch of a log is read as one record, all of it, and the others as they are."""
    seen = ours(log, 0, READ_UNCOMMITTED)
    base, _end, raw = log.batches[place]
    assert seen[1:] == (log.end, False)
    assert [record[3] for record in seen[0]] == [b"v0", raw, b"v0"]
    assert [record[0] for record in seen[0]] == [0, base, log.end - 1]
    (reason,) = reasons_of(seen[0][1])
    assert reason.startswith(("the record batch cannot be read: ", "the batch has more than "))


def around(odd: Batch, change: Callable[[bytes], bytes] = lambda raw: raw) -> Log:
    """Return a log with a changed batch between others."""
    log = write([data(0), odd, data(0)], 0)
    base, end, raw = log.batches[1]
    log.batches[1] = base, end, change(raw)
    return log


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5])
@in_loop
def test_a_batch_with_a_wrong_codec_is_one_record(codec: int) -> None:
    section = b"\x82SNAPPY\0 and nothing else at all"
    one_record_of(around(data(0, 1), lambda raw: with_section(raw, section, codec)))


@pytest.mark.parametrize("codec", [0, GZIP, 4])
@pytest.mark.parametrize("deltas", [(0, 2**31 - 1), (0, 4), (0, 3, 3), (2, 1), (0, -1)])
@in_loop
def test_a_record_is_not_believed_an_offset_that_is_none_of_its_batch(
    codec: int, deltas: tuple[int, ...]
) -> None:
    """No broker looks: it would pass over the log of others, or back."""
    records = tuple((delta, 9, b"k", b"v") for delta in deltas)
    one_record_of(around(Batch(records, 3, 0, codec=codec)))


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("times", [(9, LARGEST_MS + 1), (9, 2**62), (-(2**62), 9)])
@in_loop
def test_a_record_has_a_time_that_fits_64_bits(codec: int, times: tuple[int, ...]) -> None:
    records = tuple((delta, at, b"k", b"v") for delta, at in enumerate(times))
    log = around(Batch(records, 1, 0, codec=codec))
    one_record_of(log)
    assert abs(ours(log, 0, READ_UNCOMMITTED)[0][1][1]) <= LARGEST_MS


@pytest.mark.parametrize("codec", [0, 4])
@in_loop
def test_a_record_may_have_no_time_or_one_in_nanoseconds(codec: int) -> None:
    odd = Batch(((0, LARGEST_MS, b"k", b"v"), (1, -1, b"k", b"w")), 1, 0, codec=codec)
    seen = ours(around(odd), 0, READ_UNCOMMITTED)
    assert [record[1] for record in seen[0]] == [1_000, LARGEST_MS, -1, 1_000]


@in_loop
def test_a_record_with_a_wrong_length_stops_nothing() -> None:
    """No broker compares it with what is there, where a batch is compressed."""

    def longer(raw: bytes) -> bytes:
        section = bytearray(decompressed(4, raw[HEADER_BYTES:]))
        section[0] += 2
        return with_section(raw, bytes(cramjam.zstd.compress(bytes(section))), 4)

    one_record_of(around(data(0, codec=4), longer))


@pytest.mark.parametrize("codec", [0, 4])
@in_loop
def test_invalid_headers_stop_nothing(codec: int) -> None:
    odd = Batch(((0, 9, b"k", b"v", [("name", b"said")]),), 0, 0, codec=codec)

    def cut(raw: bytes) -> bytes:
        section = bytearray(
            decompressed(codec, raw[HEADER_BYTES:]) if codec else raw[HEADER_BYTES:]
        )
        section[section.index(b"name") - 1] = 126  # 63 bytes
        packed = bytes(cramjam.zstd.compress(bytes(section))) if codec else bytes(section)
        return with_section(raw, packed, codec)

    one_record_of(around(odd, cut))


@pytest.mark.parametrize("key", [b"", b"k" * 5_000])
@pytest.mark.parametrize("size", [2**63 - 1, 2**63 - 101, 2**63 - 4_000, 2**62, -2])
@pytest.mark.parametrize("where", ["key", "value", "name", "said"])
@in_loop
def test_a_size_that_cannot_be_stops_nothing(key: bytes, size: int, where: str) -> None:
    parts = {"key": key, "value": b"v", "name": b"n", "said": b"s"}
    body = b"\0\0\0"
    for name, held in parts.items():
        if name == "name":
            body += encode_varint(1)
        body += encode_varint(size if name == where else len(held)) + held
    section = encode_varint(len(body)) + body
    log = around(data(0), lambda raw: with_section(raw, section))
    if size < 0 and where != "name":  # none of it
        assert ours(log, 0, READ_UNCOMMITTED)[1:] == (log.end, False)
    else:
        one_record_of(log)


@in_loop
def test_many_headers_are_not_looked_for_where_no_record_is() -> None:
    body = b"\0\0\0\1" + encode_varint(3_000_000) + b"\0" * 3_000_000 + b"\0"
    section = bytes(cramjam.zstd.compress(encode_varint(20) + body))
    log = around(data(0), lambda raw: with_section(raw, section, 4))
    with pytest.MonkeyPatch.context() as patching:
        looked = Mock(side_effect=batches_module.decode_varint)
        patching.setattr(batches_module, "decode_varint", looked)
        one_record_of(log)
    assert 0 < looked.call_count < 100


@in_loop
def test_an_unreadable_batch_is_a_step_of_its_own() -> None:
    """However little it is: it takes as long as a fetch to see."""
    odd = data(0, 1, codec=4)
    log = write([data(0), odd, odd, odd, data(0)], 0)
    for place in (1, 2, 3):
        base, end, raw = log.batches[place]
        log.batches[place] = base, end, with_section(raw, b"nothing", 4)
    fetched, _assignment = result(log, 0, READ_UNCOMMITTED)
    steps = list[int]()
    while fetched.has_more():
        batch = to_record_batch(fetched)
        assert batch is not None
        steps.append(len(batch))
    assert sum(steps) == 5
    assert len(steps) >= 4


@pytest.mark.parametrize(
    ("limit", "there", "codec"),
    [("MOST_RECORDS", 40, codec) for codec in (0, GZIP, 4)]
    + [("MOST_HEADERS", 360, codec) for codec in (GZIP, 4)],  # no room for them where plain
)
@in_loop
def test_a_batch_of_too_many_is_one_record(
    unpacking: str, limit: str, there: int, codec: int
) -> None:
    records = tuple((delta, 9, b"k", b"v" * 90, [("a", b"")] * 9) for delta in range(40))
    log = around(Batch(records, 39, 0, codec=codec))
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(batches_module, limit, there - 1)
        if unpacking == "compiled":  # its limits are compiled
            patching.setattr(drain_module, "MIN_COMPILED_BYTES", 1 << 30)
        one_record_of(log)
        patching.setattr(batches_module, limit, there)
        assert len(ours(log, 0, READ_UNCOMMITTED)[0]) == 42


@pytest.mark.parametrize("codec", [GZIP, 4])
@pytest.mark.parametrize("records", [(MOST_RECORDS + 1, 0), (10, MOST_HEADERS // 10 + 1)])
@in_loop
def test_a_batch_of_very_many_is_one_record(codec: int, records: tuple[int, int]) -> None:
    number, headers = records

    def many(raw: bytes) -> bytes:
        section = b"".join(
            encode_varint(len(body)) + body
            for at in range(number)
            for body in [b"\0\0%s\1\1%s" % (encode_varint(at), encode_varint(headers))
                         + b"\0\1" * headers]
        )  # fmt: skip
        head = bytearray(raw[:HEADER_BYTES])
        struct.pack_into(">i", head, LAST_DELTA_AT, number - 1)
        struct.pack_into(">i", head, COUNT_AT, number)
        packed = cramjam.gzip if codec == GZIP else cramjam.zstd
        return with_section(bytes(head), bytes(packed.compress(section)), codec)

    log = around(Batch(((0, 9, b"k", b"v"),), number - 1, 0), many)
    one_record_of(log)


def outcome(log: Log) -> Seen | None:
    """Return what is seen of a log from its beginning; None where it is refused."""
    seen = ours(log, 0, READ_UNCOMMITTED)
    return None if seen[2] else seen


def data(*deltas: int, **more: Any) -> Batch:
    records = tuple((delta, 1_000 + delta, b"k", b"v%d" % delta) for delta in deltas)
    return Batch(records, max(deltas, default=0), **{"gap": 0, **more})


def offsets(log: Log, position: int = 0, isolation: int = READ_UNCOMMITTED) -> list[int]:
    records, _position, _corrupt = ours(log, position, isolation)
    return [offset for offset, *_ in records]


def test_compiled_code_unpacks_what_is_plain(unpacking: str) -> None:
    """Or else the laws here do not cover it."""

    async def body() -> None:
        batches = [data(0, 1), data(0, codec=GZIP), data(0, 4)]
        fetched, _assignment = result(write(batches, first=0), 1, READ_COMMITTED)
        batch = to_record_batch(fetched)
        assert isinstance(batch, ColumnarRecordBatch) == (unpacking == "compiled")
        assert batch is not None
        assert batch.offsets == [1, 2, 3, 7]
        assert batch.size == 4 * RECORD_BYTES
        assert [batch.value_bytes_at(place) for place in range(4)] == [2] * 4
        assert batch.values == [b"v1", b"v0", b"v0", b"v4"]

    asyncio.run(body())


@in_loop
def test_of_a_small_fetch_it_is_not_worth_it() -> None:
    fetched, _assignment = result(write([data(0, 1)], first=0), 0, READ_COMMITTED)
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(drain_module, "MIN_COMPILED_BYTES", 20_000)
        assert type(to_record_batch(fetched)) is RecordBatch


@in_loop
def test_holes_are_no_records() -> None:
    log = write([data(0, 2, 5), data(1, gap=4), Batch((), 3, gap=0), data(0)], first=10)
    assert offsets(log, 10) == [10, 12, 15, 21, 26]
    assert ours(log, 10, READ_UNCOMMITTED)[1] == log.end == 27


@in_loop
def test_a_fetch_may_begin_within_a_batch() -> None:
    assert offsets(write([data(0, 1, 2, 3, codec=GZIP), data(0)], first=0), 2) == [2, 3, 4]


@in_loop
def test_aborted_records_are_left_out_where_committed_ones_are_asked_for() -> None:
    abort = Batch(((0, 1, ABORT, b"\0" * 6),), 0, gap=0, producer=7, control=True)
    batches = [data(0, producer=7), data(0, producer=8), abort, data(0, producer=7)]
    log = write(batches, first=5)
    assert log.aborted(5) == [(7, 5)]
    assert offsets(log, 5, READ_COMMITTED) == [6, 8]
    assert offsets(log, 5) == [5, 6, 8]


@in_loop
def test_a_wrong_checksum_is_fetched_once_more_and_then_one_record() -> None:
    """Damaged on its way it is whole the next time; a broker need not compare checksums."""
    log = write([data(0, 1), data(0, 2, wrong_crc=True), data(0)], first=next(FRESH))
    first, bad = log.batches[0][0], log.batches[1]
    fetched, _assignment = result(log, first, READ_UNCOMMITTED)
    batch = to_record_batch(fetched)
    assert batch is not None
    assert (batch.offsets, batch.end) == ([first, first + 1], first + 2)
    assert to_record_batch(fetched) is None, "the rest would be taken without it"
    records, position, _corrupt = ours(log, first + 2, READ_UNCOMMITTED)
    assert [record[0] for record in records] == [bad[0], log.end - 1]
    assert (records[0][3], position) == (bad[2], log.end)
    assert reasons_of(records[0]) == ["the record batch cannot be read: its checksum"]


@in_loop
def test_a_batch_that_was_damaged_on_its_way_is_read_as_it_is() -> None:
    log = write([data(0, wrong_crc=True), data(0)], first=next(FRESH))
    first, *_ = log.batches[0]
    fetched, assignment = result(log, first, READ_UNCOMMITTED)
    assert to_record_batch(fetched) is None
    assert assignment.state_value(TP).position == first
    whole = write([data(0), data(0)], first)
    assert [each[3] for each in ours(whole, first, READ_UNCOMMITTED)[0]] == [b"v0", b"v0"]


@pytest.mark.parametrize("last_delta", [0, 3, 1_000_000])
@in_loop
def test_the_end_in_a_damaged_batch_is_not_believed(last_delta: int) -> None:
    log = write([data(0), data(0, 1, 2), data(0, 1)], first=next(FRESH))
    base, end, raw = log.batches[1]
    damaged = bytearray(raw)
    struct.pack_into(">i", damaged, LAST_DELTA_AT, last_delta)
    log.batches[1] = base, end, bytes(damaged)
    assert to_record_batch(result(log, base, READ_UNCOMMITTED)[0]) is None
    records, position, _corrupt = ours(log, base, READ_UNCOMMITTED)
    assert [each[0] for each in records] == [base, end, end + 1]
    assert position == log.end


@in_loop
def test_a_damaged_last_batch_does_not_end_behind_the_log() -> None:
    log = write([data(0), data(0, 1, 2)], first=next(FRESH))
    base, end, raw = log.batches[1]
    damaged = bytearray(raw)
    struct.pack_into(">i", damaged, LAST_DELTA_AT, 1_000_000)
    log.batches[1] = base, end, bytes(damaged)
    for _fetch in range(2):
        fetched, assignment = result(log, base, READ_UNCOMMITTED)
        assignment.state_value(TP).highwater = log.end
        batch = to_record_batch(fetched)
    assert batch is not None
    assert (batch.offsets, batch.end) == ([base], log.end)
    assert assignment.state_value(TP).position == log.end


@in_loop
def test_aiokafkas_own_path_passes_a_wrong_checksum_too() -> None:
    log = write([data(0, wrong_crc=True), data(0)], first=next(FRESH))
    first, end, raw = log.batches[0]
    records = RetainedRecords(log.fetch(first))
    assert not records.has_next()
    assert records.size_in_bytes() == 0, "aiokafka would take it for too large, and go on"
    seen, position, corrupt = stock(log, first, READ_COMMITTED)
    assert ([record[3] for record in seen], position, corrupt) == ([raw], end, False)
    assert [record[0] for record in stock(log, end, READ_COMMITTED)[0]] == [end]


@pytest.mark.parametrize("read", [ours, stock])
@in_loop
def test_behind_a_damaged_abort_marker_no_committed_record_is_dropped(read: Any) -> None:
    abort, commit = (
        Batch(((0, 1, key, b"\0" * 6),), 0, gap=0, producer=7, control=True, wrong_crc=damaged)
        for key, damaged in ((ABORT, True), (COMMIT, False))
    )
    log = write([data(0, producer=7), abort, data(0, 1, producer=7), commit], first=next(FRESH))
    first, marker = log.batches[0][0], log.batches[1][0]
    seen, position = [], first
    for _fetch in range(4):
        records, position, _corrupt = read(log, position, READ_COMMITTED)
        seen += [record[0] for record in records]
    assert (seen, position) == ([marker, marker + 1, marker + 2], log.end)


@pytest.mark.parametrize("last_delta", [-5, -1, -(2**31)])
@in_loop
def test_a_batch_that_ends_before_it_begins_is_skipped(last_delta: int) -> None:
    def change(raw: bytes) -> bytes:
        changed = bytearray(raw)
        struct.pack_into(">i", changed, LAST_DELTA_AT, last_delta)
        struct.pack_into(">I", changed, CRC_AT, calc_crc32c(bytes(changed[ATTRIBUTES_AT:])))
        return bytes(changed)

    one_record_of(around(data(0), change))
    empty = around(Batch((), 0, 0), change)
    assert offsets(empty) == [0, 2]


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0\0\7", b"\xff" * 9])
@in_loop
def test_a_control_batch_of_any_form_ends_nothing(key: bytes | None) -> None:
    odd = Batch(((0, 1, key, None),), 0, gap=0, producer=77, control=True)
    log = write([data(0), data(0)], 0)
    odd_raw = encode(odd, 1)
    log.batches[1:] = [(1, 2, odd_raw), (2, 3, encode(data(0), 2))]
    assert offsets(log, 0, READ_COMMITTED) == [0, 2]
    assert offsets(log, 0, READ_UNCOMMITTED) == [0, 2]


@in_loop
def test_a_batch_that_is_large_enough_leaves_the_rest_for_the_next() -> None:
    log = write([data(0, 1), data(0, codec=GZIP), data(0)], first=0)
    fetched, assignment = result(log, 0, READ_UNCOMMITTED)
    steps = []
    while fetched.has_more():
        batch = to_record_batch(fetched, most_bytes=RECORD_BYTES + 1)
        assert batch is not None
        steps.append((batch.offsets, batch.end, assignment.state_value(TP).position))
    assert steps == [([0, 1], 2, 2), ([2, 3], 4, 4)]


@pytest.mark.parametrize("why", ["sought", "paused", "revoked"])
@in_loop
def test_nothing_is_returned_of_a_partition_that_is_no_longer_meant(why: str) -> None:
    fetched, assignment = result(write([data(0, 1)], 0), 0, READ_UNCOMMITTED)
    state = assignment.state_value(TP)
    if why == "sought":
        state.seek(1)
    elif why == "paused":
        state.pause()
    else:
        assignment._unassign()
    assert to_record_batch(fetched) is None
    assert not fetched.has_more()
    if why == "sought":
        assert state.position == 1
