"""Another version's order of fields, and fields that it lacks or adds by default, do not differ."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.registry import policy
from processing.state.rows import (
    CONTROL,
    PARTITION_KEY,
    ContextRow,
    TaskStateRow,
    context_key,
    control_row,
    encode_context,
    encode_partition,
)
from replay.verify.meaning import same_row
from replay.verify.row_diff import Findings, compare_rows
from sinks.redis.stored_fields import Reach, classify
from sinks.redis.thresholds import encode_value
from topics.schema.json_schema import Counts, PublishedThreshold
from topics.schema.meaning import same_threshold, same_value

KEY = context_key("acme", "workflow_type=refund")
THRESHOLD = PublishedThreshold(
    tenant="acme", workflow_type="refund", path="workflow_type=refund", speculate=0.8, suggest=0.6,
    epoch=1, offset=7, outcomes=5, learner="td", at=9, gain=3.0, counts=Counts(5, 4),
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(each) for each in value] if isinstance(value, list) else value


@given(json_values)
def test_the_order_of_fields_means_nothing(value: Any) -> None:
    assert same_value(value, shuffled(value))
    assert same_value(value, orjson.loads(orjson.dumps(value)))


@given(st.dictionaries(st.text(), json_values, min_size=1))
def test_a_default_that_only_one_has_means_nothing(value: dict[str, Any]) -> None:
    for default in (None, False, 0, 0.0, "", [], {}):
        assert same_value(value, {**value, "added": default} | value)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), (0.5, 0.25), ("a", "b"), (True, 1), ([1], [2]), ([1], [1, 2]), ({"a": 1}, {}),
     ({"a": 1}, {"a": 2}), (None, 3)],
)  # fmt: skip
def test_differences_are_found(one: Any, other: Any) -> None:
    assert not same_value(one, other)
    assert not same_value(other, one)


def test_a_threshold_of_another_version() -> None:
    served = orjson.loads(encode_value(THRESHOLD))
    assert same_threshold(served, msgspec.to_builtins(THRESHOLD))
    older = {key: served[key] for key in reversed(served)} | {"counts": served["counts"][:6]}
    assert same_threshold(older, served)
    newer = {**served, "deviation": None, "deleted": False, "cost": 0, "unknown": 3}
    newer["counts"] = [*served["counts"], 0]
    assert same_threshold(newer, served)
    for field, value in (("speculate", 0.1), ("offset", 8), ("deleted", True), ("gain", 0.0)):
        assert not same_threshold({**served, field: value}, served)


def test_verify_finds_no_fault_with_a_value_of_another_version() -> None:
    expected = orjson.loads(encode_value(THRESHOLD))
    served = {**dict(reversed(expected.items())), "cost": 0.0, "deviation": None, "later": 1}
    assert classify(THRESHOLD, orjson.dumps(served), Reach(1, 7)) is None


def row(**fields: Any) -> bytes:
    given_fields = {"state": policy("td").initial(), "counts": (0,) * 10, **fields}
    whole = ContextRow(1, 5, 9, 4, 2, 1, policy("td").version, "td", given_fields.pop("state"))
    return encode_context(whole._replace(**given_fields))


def test_a_row_without_counts_is_one_of_zeros() -> None:
    assert row(counts=()) != row()
    assert same_row(KEY, row(counts=()), row())
    assert not same_row(KEY, row(counts=()), row(counts=(1,) + (0,) * 9))


@pytest.mark.parametrize("field", ["epoch", "offset", "at", "outcomes", "hits", "gain"])
def test_rows_that_differ(field: str) -> None:
    assert not same_row(KEY, row(), row(**{field: 77}))
    assert not same_row(KEY, row(), row(state=tuple(x + 0.1 for x in policy("td").initial())))


def test_rows_of_control_records_and_of_the_partition() -> None:
    key = CONTROL + b"reset\x1f"
    one = control_row(msgspec.msgpack.encode({"id": "r", "at": 4}), 1, 5)
    other = control_row(msgspec.msgpack.encode({"at": 4, "id": "r", "tenant": None}), 1, 5)
    assert same_row(key, one, other)
    assert not same_row(key, one, control_row(msgspec.msgpack.encode({"id": "r", "at": 5}), 1, 5))
    assert not same_row(key, one, control_row(b"\xc1", 1, 5))
    short = encode_partition(TaskStateRow(clock=4), 1, 5)
    long = short[:16] + msgspec.msgpack.encode([4, 0, 0, 0, 0, 0, 0, 0, 0, False])
    assert short != long
    assert same_row(PARTITION_KEY, short, long)
    findings = Findings()
    compare_rows(findings, 0, {key: one, PARTITION_KEY: short}, {key: other, PARTITION_KEY: long})
    assert findings.ok
