"""What the fast path accepts is what the contract accepts, event by event."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headstart.events.frames import encode_frame
from headstart.events.schema import MAX_CLOCK_SKEW_MS, MAX_EVENT_BYTES, InvalidEvent
from headstart.events.validation import validate
from processing.records import decode
from processing.records.decode import decode_record, decode_records, load_event
from tests.sample_event import BASE, NOW

# --- events, good and bad, as JSON text -----------------------------------------------------------

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["]", '["', "}{", "\\", '"', "\x1f", "\x00", "é", "𝄞", "\u2028", "x" * 257]
)
scalar = st.none() | st.booleans() | st.integers() | st.floats() | text
anything = st.recursive(
    scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
DATA = {
    "context": st.dictionaries(st.sampled_from(["domain", "complexity", "x"]), anything),
    "query": text,
    "concepts": st.lists(text, max_size=2),
    "plan": anything,
    "attachments": st.lists(st.fixed_dictionaries({"uri": text}, optional={"type": text})),
    "prediction": st.fixed_dictionaries(
        {},
        optional={
            "tool_id": st.none() | text,
            "mode": st.sampled_from(["speculative", "suggestion", "explicit"]),
            "was_correct": st.booleans(),
        },
    ),
    "result": st.fixed_dictionaries(
        {}, optional={"gain_ms": st.floats(0, 1e9), "output": anything}
    ),
    "outcome": st.sampled_from(["success", "aborted"]),
    "reward": st.floats(-1, 1),
}
good = st.fixed_dictionaries(
    {
        **{name: st.just(value) for name, value in BASE.items()},
        "id": st.uuids().map(str) | st.uuids().map(lambda value: value.hex.upper()),
        "timestamp": st.integers(0, NOW + MAX_CLOCK_SKEW_MS),
    },
    optional={
        "task_id": st.none() | text,
        "success": st.none() | st.booleans(),
        "confidence": st.floats(0, 1) | st.integers(0, 1),
        "data": st.none() | st.fixed_dictionaries({}, optional=DATA),
        "origin": st.lists(anything, max_size=2),
        "mine": anything,
    },
)
PATHS = [("tenant",), ("timestamp",), ("id",), ("event_type",), ("confidence",), ("workflow_id",),
         ("user_id",), ("success",), ("data",), ("data", "context"), ("data", "concepts"),
         ("data", "prediction", "mode"), ("data", "prediction", "was_correct"),
         ("data", "result", "gain_ms"), ("data", "attachments"), ("data", "reward"), ("mine",),
         ("data", "context", "domain"), ("data", "result", "output")]  # fmt: skip


def nested(levels: int, left: str, right: str) -> str:
    return left * levels + "1" + right * levels


RAW = [
    "1e400", "-1e400", "1.8e308", "9" * 30, "9" * 400, "9" * 5000, "1e3", "1E-400", "-0",
    "-0.0", "1.0",
    "1760000000000.0", "0.1e1", '"\\u0000"', '"a\\u001fb"', '"\\u0041"', '"\\u2028"', '"\\/"',
    '{"\\u0000":1}', '{"a":1,"a":"\\u0000"}', '"\\\\u0000"', "[]", "{}", '["]","["]',
    *[nested(n, "[", "]") for n in (27, 28, 29, 30, 31, 32, 33, 200)],
    *[nested(n, '[{"a":', "}]") for n in (14, 15, 16, 17, 33)],
    *[nested(n, '["]",', ',"["]') for n in (29, 30, 31, 33, 70)],
    *[nested(n, '["\\"]",', ',"\\"["]') for n in (30, 31, 70)],
    nested(2_000, "[", "]"), nested(2_000, '{"a":', "}"),
]  # fmt: skip
"""JSON that no library writes, but a producer may."""


def put(event: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    event = dict(event)
    if len(path) > 1:
        below = event.get(path[0])
        value = put(below if isinstance(below, dict) else {}, path[1:], value)
    event[path[0]] = value
    return event


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """The JSON of an event: whole, or with something dropped, replaced, repeated or raw."""
    event = draw(good)
    raw: dict[str, str] = {}
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        match draw(st.sampled_from(["drop", "replace", "raw", "raw", "rename"])):
            case "drop":
                event.pop(draw(st.sampled_from(sorted(event))), None)
            case "replace":
                event = put(event, draw(st.sampled_from(PATHS)), draw(anything))
            case "rename":
                event[draw(text)] = event.pop(draw(st.sampled_from(sorted(event))), None)
            case "raw":
                mark = f"@raw{len(raw)}@"
                raw[json.dumps(mark)] = draw(st.sampled_from(RAW))
                event = put(event, draw(st.sampled_from(PATHS)), mark)
        event = event or dict(BASE)
    written = json.dumps(event, ensure_ascii=draw(st.booleans()))
    for mark, value in raw.items():
        written = written.replace(mark, value)
    if draw(st.integers(0, 5)) == 0:
        name = draw(st.sampled_from(["confidence", "tenant", "data", "id", "mine"]))
        written = f"{written[:-1]},{json.dumps(name)}:{draw(st.sampled_from([*RAW, 'null']))}}}"
    return written.encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The JSON of an event with a few bytes changed."""
    value = bytearray(draw(texts()))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(value) - 1)))
        value[place : place + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b"", b"\xff", b"\0", b"\x1f", b"\xed\xa0\x80", b"[", b'"', b"\\"])
        )
    return bytes(value)


# --- the oracle -----------------------------------------------------------------------------------


def contract(raw: bytes) -> dict[str, Any] | None:
    """Return the event that `raw` holds where the contract accepts it."""
    try:
        event = load_event(raw)
        validate(event, now_ms=NOW)
    except InvalidEvent:
        return None
    return event if len(raw) <= MAX_EVENT_BYTES else None


def plain(value: Any) -> Any:
    """Return what any decoder gives, with ids as text."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, uuid.UUID) else value


def assert_same(decoded: Any, event: dict[str, Any]) -> None:
    """Compare every field that the decoder knows with the same field of the JSON."""
    for name in decoded.__struct_fields__:
        found, given_value = getattr(decoded, name), event.get(name)
        if name == "id":
            assert uuid.UUID(str(found)) == uuid.UUID(given_value)
        elif isinstance(found, msgspec.Struct):
            assert_same(found, given_value)
        elif isinstance(found, list) and found and isinstance(found[0], msgspec.Struct):
            assert len(found) == len(given_value)
            for one, other in zip(found, given_value, strict=True):
                assert_same(one, other)
        else:
            whole = isinstance(given_value, int) and not isinstance(given_value, bool)
            number = whole and isinstance(found, float)  # of a field that is a float
            assert plain(found) == (float(given_value) if number else given_value)


# --- the laws -------------------------------------------------------------------------------------


def assert_single(raw: bytes) -> None:
    events, refused = decode_record(raw, NOW)
    expected = contract(raw)
    assert len(events) + len(refused) == 1
    assert bool(events) == (expected is not None)
    if refused:
        assert (refused[0].raw, refused[0].place) == (raw, None)
    elif expected is not None:
        assert_same(events[0], expected)


@settings(max_examples=400)
@given(texts())
@example(json.dumps({**BASE, "timestamp": NOW + MAX_CLOCK_SKEW_MS + 1}).encode())
@example(json.dumps(BASE).encode()[:-1] + b',"data":' + b"9" * 30 + b',"data":null}')
def test_an_event_is_accepted_exactly_when_the_contract_accepts_it(raw: bytes) -> None:
    assert_single(raw)


@pytest.mark.parametrize("value", RAW, ids=lambda value: value[:24])
@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_odd_json_in_every_field(path: tuple[str, ...], value: str) -> None:
    raw = json.dumps(put(BASE, path, "@raw@")).replace('"@raw@"', value).encode()
    assert_single(raw)
    assert_frame([json.dumps(BASE).encode(), raw, json.dumps({**BASE, "n": 2}).encode()])


@given(damaged())
def test_damaged_bytes_are_never_taken_for_an_event_that_the_contract_refuses(raw: bytes) -> None:
    if raw.lstrip()[:1] != b"[":
        if raw:
            assert_single(raw)
    else:
        events, _refused = decode_record(raw, NOW)
        accepted = msgspec.json.decode(raw, type=list[msgspec.Raw]) if events else []
        good_ones = [part for part in accepted if contract(bytes(part))]
        assert len(events) == len(good_ones)


def is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def assert_frame(parts: list[bytes]) -> None:
    """Every event of a frame fares as it does alone, and a refused one is named by its place."""
    if not all(map(is_json, parts)):
        return
    value = encode_frame(parts)
    events, refused = decode_record(value, NOW)
    alone = [decode_record(part, NOW) for part in parts]
    if refused or len(value) <= MAX_EVENT_BYTES:
        wrong = {refusal.place for refusal in refused}
        for place, (_found, refusals) in enumerate(alone):
            assert (place in wrong) == bool(refusals)
        assert [refusal.raw for refusal in refused] == [parts[place] for place in sorted(wrong)]
        taken = [parts[place] for place in range(len(parts)) if place not in wrong]
        assert len(events) == len(taken)
        for event, raw in zip(events, taken, strict=True):
            assert_same(event, load_event(raw))


@settings(max_examples=200)
@given(st.lists(texts(), max_size=4))
def test_an_event_fares_in_a_frame_as_it_does_alone(parts: list[bytes]) -> None:
    assert_frame(parts)


def written(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode()


@given(st.lists(good, min_size=1, max_size=5))
def test_the_fast_and_the_exact_path_give_the_same(events: list[dict[str, Any]]) -> None:
    value = encode_frame(map(written, events))
    fast, refused = decode_record(value, NOW)
    slow, refused_slowly = decode._one_by_one(value, NOW)
    assert msgspec.to_builtins(list(fast)) == msgspec.to_builtins(list(slow))
    assert list(refused) == list(refused_slowly)


BEYOND_FLOATS = (1 << 1024) - (1 << 970)
"""The least integer that is rounded to no double."""
long_integers = st.integers(1, 330).flatmap(lambda digits: st.integers(-(10**digits), 10**digits))


@given(long_integers, st.sampled_from(["domain", "x"]))
@example(1 << 63, "domain")
@example(1 << 64, "domain")
@example(-(1 << 63) - 1, "domain")
@example(BEYOND_FLOATS, "domain")
@example(BEYOND_FLOATS - 1, "domain")
def test_every_path_keeps_or_refuses_an_integer(number: int, name: str) -> None:
    plain = json.dumps({**BASE, "data": {"context": {name: number}}}).encode()
    spellings = {
        "closed": plain,
        "open": plain[:-1] + b',"of_others":[[1]]}',
        "exact": plain[:-1] + rb',"query":"\u00e9"}',
        "frame": encode_frame([plain]),
        "exact frame": encode_frame([plain, plain[:-1] + rb',"query":"\u00e9"}']),
    }
    found = {kind: decode_record(value, NOW) for kind, value in spellings.items()}
    together = decode_records([plain, plain], [NOW, NOW])[0]
    events = [event for accepted, _ in found.values() for event in accepted]
    if together is not None:
        events.append(together if not isinstance(together, list) else together[0])
    if abs(number) >= BEYOND_FLOATS:
        assert (events, {len(refused) for _, refused in found.values()}) == ([], {1, 2})
        assert all("number" in refused[0].reason for _, refused in found.values())
    else:
        assert len(events) == len(spellings) + 1 + (together is not None)
        for event in events:
            assert event.data is not None
            assert event.data.context == {name: number}
            assert type(event.data.context[name]) is int


@given(st.lists(good, min_size=1, max_size=5))
def test_the_exact_path_is_not_taken_where_all_is_well(events: list[dict[str, Any]]) -> None:
    parts = [part for part in map(written, events) if contract(part) and b"\\u00" not in part]
    parts = [part for part in parts if not decode._LARGE.search(part)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_one_by_one", None)
        assert len(decode_record(encode_frame(parts), NOW)[0]) == len(parts)


LINES = [
    [b'{"a":[1,', b'2]}\n{"b":1}'],
    [json.dumps(BASE).encode(), b""],
    [json.dumps(BASE).encode() + b"\n" + json.dumps(BASE).encode(), b""],
    [json.dumps(BASE).encode()[:-1], b"}\n" + json.dumps(BASE).encode()],
    [json.dumps(BASE).encode()[:-1] + b",", b'"n":1}'],
    [json.dumps(BASE).encode()[:-1], b"}"],
    [json.dumps(BASE).encode() + b" ", b" " + json.dumps(BASE).encode()],
    [json.dumps(BASE).encode() + b"\r", b"\r" + json.dumps(BASE).encode()],
    [json.dumps(BASE).encode() + b" " + json.dumps(BASE).encode(), b" "],
    [json.dumps(BASE).encode() * 2, json.dumps({**BASE, "data": {}}).encode()[:-1]],
    [json.dumps(BASE).encode()[:-1] + b',"task_id":"}', b'{"}' + json.dumps(BASE).encode()],
    [json.dumps(BASE).encode()[:-1] + b',"data":{}', b"{}}" + json.dumps(BASE).encode()],
    [json.dumps(BASE).encode()[:-1] + b',"data":{"context":{}', json.dumps(BASE).encode() + b"}}"],
]
"""Records that are none but, one after the other, read like some."""


def assert_alike(values: list[bytes]) -> None:
    """Records that are decoded together fare as each does alone."""
    for value, found in zip(values, decode_records(values, [NOW] * len(values)), strict=True):
        events, refused = decode_record(value, NOW)
        if found is None:
            continue
        assert not refused
        alike = found if isinstance(found, list) else [found]
        assert msgspec.to_builtins(alike) == msgspec.to_builtins(list(events))


@settings(max_examples=300)
@given(st.lists(texts() | good.map(written), min_size=2, max_size=5))
@example([json.dumps({**BASE, "timestamp": NOW + MAX_CLOCK_SKEW_MS + n}).encode() for n in (0, 1)])
def test_records_decoded_together_fare_as_each_alone(values: list[bytes]) -> None:
    assert_alike(values)


@pytest.mark.parametrize("values", LINES)
def test_records_do_not_borrow_from_each_other(values: list[bytes]) -> None:
    assert_alike(values)
    assert_alike([json.dumps(BASE).encode(), *values])
    assert_alike([*values, json.dumps(BASE).encode()])


def test_records_of_plain_events_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_decode_fast", None)
    values = [written({**BASE, "task_id": text}) for text in ("a", "\n", "é\\")]
    assert [each.task_id for each in decode_records(values, [NOW] * 3)] == ["a", "\n", "é\\"]  # type: ignore[union-attr]
