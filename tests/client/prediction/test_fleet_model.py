"""The model that executors learn together: what is refused, exactness, bounds, replay."""

from __future__ import annotations

import math
import random
import sys
from array import array
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.prediction.decision_record import DecisionRecord
from headstart.prediction.shared.decision_events import value_event
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.invalid_decision import InvalidDecision
from headstart.prediction.shared.record_limits import LARGEST_RECORD
from headstart.prediction.shared.record_reading import read_record
from headstart.prediction.shared.record_writing import record_bytes
from headstart.prediction.stable_hash import salted_hash
from headstart.prediction.state_format import UnknownState
from tests.client.prediction.fleet_events import Fleet, ForeignRecords, event_of
from tests.client.prediction.synthetic_runs import play, support_runs

LARGEST_STATE = 4_000_000  # bytes of memory


@lru_cache(maxsize=1)
def learned() -> Fleet:
    """Return a fleet that has learned some runs."""
    fleet = Fleet(2)
    for i, steps in enumerate(support_runs(24)):
        play(fleet.executors[i % 2].run(user_id=f"u{i % 5}"), steps)
        if i % 6 == 5:
            fleet.share()
    return fleet


def test_compact_records_are_read_as_they_were_written() -> None:
    for seed in range(200):
        record = ForeignRecords(seed).record()
        data = record_bytes(record)
        if len(data) <= LARGEST_RECORD:
            assert read_record(data) == record


def test_replaying_the_events_gives_the_same_bytes_also_through_a_state_in_the_middle() -> None:
    events = learned().events
    kinds = {event["event_type"] for event in events}
    assert kinds == {"call_decision", "shared_value"}
    replayed = FleetModel()
    for i, event in enumerate(events):
        if i % 40 == 17:
            replayed = FleetModel.from_bytes(replayed.to_bytes())
        replayed.apply(event)
    assert replayed.to_bytes() == learned().model.to_bytes()
    assert replayed.snapshot() == learned().model.snapshot()


def test_what_is_sent_again_changes_nothing() -> None:
    model = FleetModel.from_bytes(learned().model.to_bytes())
    before = model.to_bytes()
    assert not any(model.apply(event) for event in learned().events[-30:])
    assert model.to_bytes() == before


@settings(max_examples=150)
@given(st.data())
def test_a_changed_record_is_refused_without_effect_or_learned(data: st.DataObject) -> None:
    """Never another error, and never a number that is none."""
    events = [each for each in learned().events if each["event_type"] == "call_decision"]
    content = data.draw(st.sampled_from(events))["content"]
    record = bytearray.fromhex(content["record"])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(record) - 1))
        change = data.draw(st.sampled_from(("set", "insert", "delete", "cut")))
        if change == "set":
            record[place] = data.draw(st.integers(0, 255))
        elif change == "insert":
            record.insert(place, data.draw(st.integers(0, 255)))
        elif change == "delete":
            del record[place]
        else:
            del record[max(1, place) :]
        record = record or bytearray(b"\1")
    model = learned_copy()
    before = model.to_bytes()
    changed = {**content, "record": record.hex(), "sequence": 10**6}
    refused = False
    try:
        model.apply({"event_type": "call_decision", "content": changed})
    except InvalidDecision:
        refused = True
    if refused:
        assert model.to_bytes() == before
        return
    check_numbers(model)
    assert FleetModel.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


def learned_copy() -> FleetModel:
    return FleetModel.from_bytes(learned().model.to_bytes())


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("executor", None), ("executor", "e0"), ("executor", 7), ("sequence", 0),
        ("sequence", 2**60), ("sequence", "1"), ("sequence", True), ("sequence", 1.0),
        ("writer", "h123"), ("writer", "h" + "g" * 15), ("check", None), ("record", ""),
        ("record", "zz"), ("record", 5), ("record", "02"), ("record", "01"),
        ("record", "f" * 70_000),
    ],
)  # fmt: skip
def test_a_field_of_another_form_is_refused_by_its_name(member: str, value: object) -> None:
    model = learned_copy()
    before = model.to_bytes()
    event = event_of(ForeignRecords(1).record())
    event["content"] |= {"check": learned().events[0]["content"]["check"], member: value}
    with pytest.raises(InvalidDecision, match=member if member != "check" else "check"):
        model.apply(event)
    assert model.to_bytes() == before


@pytest.mark.parametrize("event", [
    {}, {"event_type": "call_decision"}, {"event_type": "other", "content": {}},
    {"event_type": "shared_value", "content": {"kind": "other"}},
    {"event_type": ["call_decision"], "content": {}},
])  # fmt: skip
def test_an_event_of_another_form_is_refused(event: Mapping[str, object]) -> None:
    with pytest.raises(InvalidDecision):
        FleetModel().apply(event)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("constant", "[1]"), ("constant", '"' + "x" * 201 + '"'), ("constant", "nothing"),
        ("constant", "9" * 3_000), ("constant", "[" * 4_000), ("skeleton", "[]"),
        ("skeleton", '["t"]'), ("skeleton", '["t",[1,null]]'), ("skeleton", '[1,[0]]'),
        ("skeleton", '["t",[0,["a",[0]]]]'), ("skeleton", '["t",[0,["b",null],["a",null]]]'),
        ("skeleton", '["t",[0,["a",null],["a",null]]]'), ("skeleton", '["t",[true]]'),
        ("skeleton", '["t",[0,["a",' + '[0,["a",' * 400 + "null" + "]]" * 401 + "]"),
        ("skeleton", '["t",[0,["a",[1' + ",null" * 30 + "]]]]"),
    ],
)  # fmt: skip
def test_a_value_of_another_form_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidDecision, match="value"):
        FleetModel().apply(value_event(5, kind, 1, text, b""))


def test_a_value_that_was_not_requested_is_not_kept() -> None:
    model = learned_copy()
    assert model.check is not None
    before = model.to_bytes()
    identity = salted_hash("secret", b"")
    assert not model.apply(value_event(model.check, "constant", identity, '"secret"', b""))
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("value", '"forged"'), ("value", '["get_order",[0,["other",null]]]'),
        ("value", '["other",[0,["order_id",null]]]'), ("salt", "s" + "0" * 32), ("salt", "s"),
        ("salt", None), ("hash", "h" + "1" * 15),
    ],
)  # fmt: skip
def test_a_shared_value_that_is_not_of_its_hash_is_refused(member: str, value: object) -> None:
    fleet = Fleet(1, hash_key=b"a secret of the tests")
    for i, steps in enumerate(support_runs(12)):
        play(fleet.executors[0].run(user_id=f"u{i}"), steps)
    fleet.share()
    shared = [each for each in fleet.events if each["event_type"] == "shared_value"]
    assert {each["content"]["kind"] for each in shared} == {"constant", "skeleton"}
    before = fleet.model.to_bytes()
    for each in shared:
        with pytest.raises(InvalidDecision, match=r"salt|value"):
            fleet.model.apply({**each, "content": {**each["content"], member: value}})
    assert fleet.model.to_bytes() == before


def test_a_record_of_another_hash_key_is_refused_with_what_to_do() -> None:
    event = event_of(ForeignRecords(1).record())
    with pytest.raises(InvalidDecision, match=r"hash_key.*predict reset"):
        learned_copy().apply(event)


def test_foreign_records_leave_tables_within_bounds_and_numbers_finite() -> None:
    model, foreign, applied = FleetModel(), ForeignRecords(7), 0
    for i in range(1_500):
        try:
            applied += model.apply(event_of(foreign.record(), i + 1, i))
        except InvalidDecision:
            continue  # too large
    assert applied > 1_000
    check_numbers(model)
    assert memory_of(model, set()) < LARGEST_STATE
    assert len(model.snapshot()) <= 256_000
    assert FleetModel.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


def test_executors_go_on_with_what_foreign_records_taught() -> None:
    fleet, foreign = Fleet(), ForeignRecords(3)
    check = fleet.executors[0]._predictor.check
    chance = random.Random(1)
    for i in range(300):
        event = event_of(foreign.record(), i + 1, i)
        event["content"]["check"] = f"h{check:015x}"
        fleet.model.apply(event)
        if i % 100 == 99:
            fleet.share()
            for steps in support_runs(4, chance.randrange(99)):
                play(fleet.executors[0].run(user_id=f"u{i}"), steps)
    check_numbers(fleet.model)


@pytest.mark.parametrize("limit", [256_000, 8_000, 2_000])
def test_a_snapshot_is_within_its_limit(limit: int) -> None:
    assert len(learned().model.snapshot(limit)) <= limit
    assert learned().model.snapshot(limit) == learned_copy().snapshot(limit)


def test_names_of_tools_alone_do_not_break_the_limit() -> None:
    model, names = FleetModel(), random.Random(3)
    blank = DecisionRecord((7, *range(100, 110)), (), (), "", (), None, (), 1)
    for i in range(300):
        name = "".join(chr(names.randrange(0x4E00, 0x9FFF)) for _ in range(200))
        model.apply(event_of(blank._replace(symbol=name), i + 1))
    assert len(model.snapshot(20_000)) <= 20_000


@pytest.mark.parametrize("change", [lambda data: data[:-9], lambda data: b"{}", lambda data: b""])
def test_an_invalid_state_is_refused(change: Any) -> None:
    with pytest.raises(UnknownState):
        FleetModel.from_bytes(change(learned().model.to_bytes()))


def check_numbers(model: FleetModel) -> None:
    """Assert that all weights are finite."""
    numbers: list[float] = []
    tools, arguments, ranking = model.model.tools, model.model.arguments, model.model.ranking
    numbers += [*tools.weights, *tools.named_weights, *(x for each in tools.escapes for x in each)]
    numbers += [*arguments.flag_weights, *ranking.weights, *ranking.tries_weights]
    numbers += [ranking.repeated_weight, *ranking.correction.points]
    numbers += [x for each in ranking.tool_weights.values() for x in each]
    for leaf in arguments.leaves.values():
        numbers += [*leaf.numbers, *leaf.flag_weights, leaf.constant_share]
    assert all(map(math.isfinite, numbers))
    assert max(map(abs, numbers)) < 10_000


def memory_of(value: Any, seen: set[int]) -> int:
    """Return the bytes of an object and of all that it refers to."""
    if id(value) in seen or callable(value):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return size + sum(memory_of(k, seen) + memory_of(v, seen) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return size + sum(memory_of(item, seen) for item in value)
    if isinstance(value, str | bytes | bytearray | array | int | float):
        return size
    names = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    members = [getattr(value, name) for name in names if hasattr(value, name)]
    return size + memory_of(getattr(value, "__dict__", None), seen) + memory_of(members, seen)


def test_a_decision_record_has_the_fields_that_are_written() -> None:
    assert len(DecisionRecord._fields) == 8  # another field needs another version of both forms
