"""What the compiled scanner takes, the decoder takes, and reads the same in it."""

from __future__ import annotations

import random
from typing import Any, get_args, get_type_hints

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.events import frames
from headstart.events import schema as events
from headstart.events.schema import (
    FIRST_MS,
    MAX_CLOCK_SKEW_MS,
    Data,
    Event,
    Prediction,
    Result,
)
from headstart.keys import SEPARATOR
from processing.apply.scanned_batch import _ABSENT, _NEXT_KEY, MIN_EVENT_BYTES, ScannedBatch
from processing.config import LARGEST_MS
from processing.contexts.levels import _TOP_LEVEL, context_key_getter
from processing.kernel_handle import kernels
from processing.records.batch import RecordBatch
from processing.records.decode import decode_record
from processing.state import counters as tally
from topics.schema.event_structs import EventFields

pytestmark = pytest.mark.usefixtures("compiled")
NOW = 1_760_000_000_000
LEVELS = ("domain", "user_id", "step")
PLAIN: dict[str, Any] = {
    "id": "0199c82c-c000-7abc-8def-0123456789ab",
    "event_type": "task_complete",
    "tenant": "acme",
    "workflow_type": "refund",
    "workflow_id": "run-1",
    "timestamp": NOW,
    "task_id": "7",
    "user_id": "u1",
    "tool_id": "search",
    "success": True,
    "confidence": 0.26888552506735464,
    "data": {
        "context": {"domain": "retail", "complexity": 0.5, "step": "3", "n": None},
        "query": "where is it",
        "concepts": ["a", "b"],
        "prediction": {"was_correct": True, "speculated": False, "mode": "suggestion"},
        "result": {"execution_time_ms": 812.5, "gain_ms": 400, "cost_ms": 0.1},
        "outcome": "success",
        "source": "user",
        "reward": -1.5,
    },
    "origin": ["2e1cb262-c4c6-483f-915d-f201fc946e14", 41],
}


def scanned(*values: bytes, levels: tuple[str, ...] = LEVELS) -> ScannedBatch:
    count = len(values)
    offsets = list(range(count))
    batch = RecordBatch("t", 0, 0, count, offsets, [NOW] * count, [None] * count, [*values])
    return ScannedBatch(batch, range(len(batch)), levels, kernels())


def is_plain(event: dict[str, Any]) -> bool:
    return bool(scanned(orjson.dumps(event)).counts[0] == 1)


def agree(scan: ScannedBatch, values: list[bytes]) -> None:
    """Compare what was taken with what the decoder makes of it."""
    place_of, at = context_key_getter(LEVELS), 0
    for value, count in zip(values, scan.counts.tolist(), strict=True):
        if count < 0:
            continue
        decoded, refused = decode_record(value, NOW)
        assert not refused
        assert len(decoded) == count
        for event in decoded:
            check_event(scan, at, event)
            assert scan.path_keys[int(scan.rows[at, kernels().PATH])] == place_of(event)
            at += 1
    assert at == len(scan.rows)


def check_event(scan: ScannedBatch, at: int, event: EventFields) -> None:
    compiled, row, numbers = kernels(), scan.rows[at], scan.numbers[at].tolist()
    data, prediction = event.data, event.data and event.data.prediction
    assert data is not None
    assert prediction is not None
    assert event.event_type == "task_complete"
    result = data.result
    stakes = (
        (result.gain_ms or 0.0, result.cost_ms or 0.0, result.execution_time_ms or 0.0)
        if result is not None
        else (0.0, 0.0, 0.0)
    )
    assert event.confidence is not None
    assert numbers == [float(event.confidence), *map(float, stakes)]
    assert int(row[compiled.AT]) == event.timestamp
    assert prediction.was_correct is not None
    speculated = bool(prediction.speculated)
    flags = tally.flags_of(prediction.was_correct, speculated, prediction.mode)
    assert row[compiled.FLAGS] == flags
    if event.origin is None:
        assert row[compiled.SPOOL_KEY] < 0
    else:
        lane = scan.spool_keys[int(row[compiled.SPOOL_KEY])]
        assert (lane, int(row[compiled.POSITION])) == (
            (event.tenant, event.workflow_type, event.origin[0]),
            event.origin[1],
        )
    assert scan.texts(scan.rows[at : at + 1], compiled.WORKFLOW) == [event.workflow_id]
    assert scan.texts(scan.rows[at : at + 1], compiled.TASK) == [event.task_id]


def test_an_empty_level_reads_nothing_beyond_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {**PLAIN["data"], "context": {"domain": ""}}
    values = [orjson.dumps({**PLAIN, "data": data})]
    scan, empty = scanned(*values), np.empty

    def dirty(*args: Any) -> Any:
        made = empty(*args)
        made.fill(0x9B)  # as memory may hold, and no ASCII
        return made

    monkeypatch.setattr(np, "empty", dirty)
    assert scan.path_keys[0][1] == PLAIN["workflow_type"]
    monkeypatch.undo()
    agree(scan, values)


def test_its_limits_and_fields_are_those_of_the_contract() -> None:
    compiled = kernels()
    assert compiled.MAX_EVENT_BYTES == events.MAX_EVENT_BYTES
    assert compiled.MAX_IDENTIFIER == events.MAX_IDENTIFIER
    assert compiled.MAX_FRAME_BYTES == frames.MAX_FRAME_BYTES
    assert compiled.MAX_FRAME_EVENTS == frames.MAX_FRAME_EVENTS
    assert set(compiled.TOP_LEVELS) == _TOP_LEVEL
    assert compiled.LARGEST_MS == LARGEST_MS
    written = bytes((compiled.ABSENT, compiled.APART, compiled.NEXT_KEY)).decode()
    assert written == _ABSENT + SEPARATOR + _NEXT_KEY
    assert get_args(events.SpoolId)[1].max == compiled.MAX_SPOOL
    bounds = get_args(events.UnixMs)[1]
    assert (bounds.min, bounds.max) == (compiled.MIN_TIMESTAMP, compiled.MAX_TIMESTAMP)
    contract = [set(get_type_hints(of)) for of in (Event, Data, Prediction, Result)]
    assert [set(fields) for fields in compiled.FIELDS] == contract


def test_a_plain_event_is_taken() -> None:
    values = [orjson.dumps(PLAIN), frames.encode_frame([orjson.dumps(PLAIN)] * 3)]
    scan = scanned(*values)
    assert scan.counts.tolist() == [1, 3]
    agree(scan, values)


def test_the_least_event_has_more_bytes_than_room_is_made_for() -> None:
    least = {
        **{name: PLAIN[name] for name in ("id", "event_type")},
        **{"tenant": "a", "workflow_type": "b", "workflow_id": "c", "timestamp": FIRST_MS},
        **{"confidence": 0, "data": {"prediction": {"was_correct": True}}},
    }
    assert is_plain(least)
    assert len(orjson.dumps(least)) > MIN_EVENT_BYTES


ODD: list[dict[str, Any]] = [
    {"event_type": "speculation_start"},
    {"tenant": ""},
    {"tenant": "x" * 257},
    {"tenant": None},
    {"tenant": "caf\u00e9"},
    {"user_id": "a\\b"},
    {"user_id": 7},
    {"id": "0199c82c-c000-7abc-8def-0123456789aZ"},
    {"id": "0199c82cc0007abc8def0123456789ab"},
    {"timestamp": NOW + MAX_CLOCK_SKEW_MS + 1},
    {"timestamp": NOW // 1000},
    {"timestamp": FIRST_MS - 1},
    {"timestamp": 1.5},
    {"timestamp": -1},
    {"confidence": 1.0000000000000002},
    {"confidence": -0.5},
    {"confidence": None},
    {"confidence": "0.5"},
    {"success": 1},
    {"origin": ["s", -1]},
    {"origin": ["s" * 65, 1]},
    {"origin": ["s", 2**63]},
    {"origin": ["s", 1, 2]},
    {"mine": {"nested": 1}},
    {"data": None},
    {"data": {}},
    {"data": {"prediction": None}},
    {"data": {"prediction": {"was_correct": None}}},
    {"data": {"prediction": {"was_correct": True, "mode": "other"}}},
    {"data": {"prediction": {"was_correct": True, "calibrated": 1}}},
    {"data": {"prediction": {"was_correct": True, "evidence": 12}}},
    {"data": {"prediction": {"was_correct": True, "evidence": {"tries": 12}}}},
    {"data": {**PLAIN["data"], "context": {"domain": 1}}},
    {"data": {**PLAIN["data"], "context": {"domain": "x" * 257}}},
    {"data": {**PLAIN["data"], "context": {"deep": []}}},
    {"data": {**PLAIN["data"], "concepts": ["a", 1]}},
    {"data": {**PLAIN["data"], "concepts": "a"}},
    {"data": {**PLAIN["data"], "outcome": "other"}},
    {"data": {**PLAIN["data"], "source": "nobody"}},
    {"data": {**PLAIN["data"], "reward": "much"}},
    {"data": {**PLAIN["data"], "decision": {"type": "a"}}},
    {"data": {**PLAIN["data"], "result": {"gain_ms": 1_000_000_000_000_000.2}}},
    {"data": {**PLAIN["data"], "result": {"execution_time_ms": 2e15}}},
    {"data": {**PLAIN["data"], "result": {"gain_ms": -1}}},
]
BROKEN = [b",}", b"}}", b",,", b"{}", b"", b"}\n", b"} ", b"},", b"]"]
"""Ends that JSON does not have."""


@pytest.mark.parametrize("more", ODD, ids=lambda more: repr(more)[:60])
def test_events_that_are_not_plain_are_left_alone(more: dict[str, Any]) -> None:
    assert not is_plain({**PLAIN, **more})


@pytest.mark.parametrize(
    "more",
    [
        {"user_id": None, "task_id": None, "traceparent": "00-ab-cd-01", "mine": 4, "flag": False},
        {"data": {"prediction": PLAIN["data"]["prediction"], "result": None, "context": None}},
        {"data": {"prediction": {"was_correct": False, "speculated": None, "mode": None}}},
        {"data": {"prediction": {"was_correct": True, "calibrated": True, "evidence": None}}},
        {"data": {"prediction": {"was_correct": True, "calibrated": None}}},
        {"data": {**PLAIN["data"], "result": {"gain_ms": None, "output": "x"}, "context": {}}},
    ],
)
def test_other_plain_events(more: dict[str, Any]) -> None:
    value = orjson.dumps({**PLAIN, **more})
    scan = scanned(value)
    assert scan.counts.tolist() == [1]
    agree(scan, [value])


@pytest.mark.parametrize("end", BROKEN)
def test_an_event_that_does_not_end_as_it_should_is_left_alone(end: bytes) -> None:
    value = orjson.dumps(PLAIN)
    assert scanned(value[:-1] + end, value).counts.tolist() == [-1, 1]
    framed = b"[" + value + b"," + value[:-1] + end + b"]"
    assert scanned(framed, value).counts.tolist() == [-1, 1]


@pytest.mark.parametrize("frame", [b"[%s,]", b"[,%s]", b"[%s", b"%s]", b"[%s]]", b"[[%s]]", b"[]"])
def test_an_invalid_frame_is_left_alone(frame: bytes) -> None:
    value = orjson.dumps(PLAIN)
    assert scanned(frame.replace(b"%s", value), value).counts.tolist() == [-1, 1]


def test_a_field_that_is_there_twice_is_left_alone() -> None:
    for name in (b'"tenant"', b'"confidence"', b'"timestamp"', b'"was_correct"', b'"domain"'):
        value = orjson.dumps(PLAIN)
        at = value.index(name)
        end = min(place for mark in b",}" if (place := value.find(bytes([mark]), at)) > 0)
        assert scanned(value).counts.tolist() == [1]
        twice = value[:end] + b"," + value[at:end] + value[end:]
        assert scanned(twice).counts.tolist() == [-1], twice


numbers = st.floats(0, 1) | st.floats(0, 1e11) | st.integers(0, 10**18).map(lambda n: n / 1e18)


@settings(max_examples=2_000)
@given(numbers)
def test_numbers_are_read_to_the_bit(number: float) -> None:
    text = orjson.dumps(number)
    result = {"gain_ms": number}
    value = orjson.dumps({**PLAIN, "data": {**PLAIN["data"], "result": result}})
    scan = scanned(value)
    if scan.counts[0] == 1:
        assert float(scan.numbers[0, kernels().GAIN]) == float(text)
    else:  # with an exponent, longer than 18 digits, or next to a tie
        digits = text.replace(b".", b"").strip(b"0")
        assert b"e" in text or len(digits) > 15


def test_most_numbers_are_read() -> None:
    draw = random.Random(5)
    values = [orjson.dumps({**PLAIN, "confidence": draw.random()}) for _ in range(1_500)]
    scan = scanned(*values)
    assert (scan.counts == 1).sum() > 1_480
    agree(scan, values)


def mutated(draw: random.Random, value: bytes) -> bytes:
    """Change a few bytes, or take some out, or put some in that mean something in JSON."""
    changed = bytearray(value)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(changed))
        piece = draw.choice(
            [b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"0", b"1e5", b"-", b".",
             b"\\", b" ", b"\x00", b"\xc3\xa9", b'"a":1,', b"9" * 19]
        )  # fmt: skip
        how = draw.randrange(4)
        if how == 0:
            changed[at] = draw.randrange(256)
        elif how == 1:
            changed[at:at] = piece
        elif how == 2:
            del changed[at : at + draw.randrange(1, 9)]
        else:
            changed[at : at + len(piece)] = piece
    return bytes(changed)


@settings(max_examples=400)
@given(st.integers(0, 10**9))
def test_whatever_the_bytes_what_is_taken_is_what_the_decoder_reads(seed: int) -> None:
    draw = random.Random(seed)
    plain = orjson.dumps({**PLAIN, "confidence": draw.random()})
    frame = frames.encode_frame([plain, plain])
    values = []
    for _ in range(40):
        kind = draw.randrange(10)
        if kind == 0:
            values.append(draw.randbytes(draw.randrange(60)))
        elif kind == 1:
            values.append(plain[: draw.randrange(len(plain))])
        else:
            values.append(mutated(draw, draw.choice([plain, plain, frame])))
    agree(scanned(*values), values)


def test_groups_are_numbered_in_the_order_of_their_first_events() -> None:
    kinds = ["a", "b", "a", "c", "b"]
    values = [
        orjson.dumps({**PLAIN, "workflow_type": kind, "origin": ["s", at]})
        for at, kind in enumerate(kinds)
    ]
    scan = scanned(*values)
    assert scan.rows[:, kernels().PATH].tolist() == [0, 1, 0, 2, 1]
    assert scan.rows[:, kernels().SPOOL_KEY].tolist() == [0, 1, 0, 2, 1]
    assert np.array_equal(scan.offsets_of(slice(1, 4)), [1, 2, 3])
