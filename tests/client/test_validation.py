"""The one check: every field, missing, mistyped and out of range, named by its dotted path."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from headstart.events.schema import (
    FIRST_MS,
    LAST_MS,
    MAX_CLOCK_SKEW_MS,
    MAX_DEPTH,
    MAX_IDENTIFIER,
    InvalidEvent,
)
from headstart.events.validation import check_fields, validate
from tests.sample_event import FULL, NOW

REQUIRED = ("id", "event_type", "tenant", "workflow_type", "workflow_id", "timestamp")
IDENTIFIERS = ("tenant", "workflow_type", "workflow_id", "task_id", "user_id", "agent_id",
               "session_id", "tool_id", "data.prediction.tool_id")  # fmt: skip
STRINGS = (*IDENTIFIERS, "id", "data.query", "data.query_hash", "data.response",
           "data.concepts.0", "data.domains.0", "data.agents_used.0", "data.insights.0",
           "data.attachments.0.uri", "data.attachments.0.type", "data.attachments.0.hash",
           "data.prediction.reasoning", "data.decision.type", "data.decision.action",
           "data.decision.reasoning", "data.target_id")  # fmt: skip
BOOLEANS = ("success", "data.prediction.was_correct", "data.prediction.speculated",
            "data.decision.accepted", "data.accepted")  # fmt: skip
START = {**FULL, "event_type": "speculation_start"}
NUMBERS = ("timestamp", "confidence", "data.result.execution_time_ms", "data.result.gain_ms",
           "data.result.cost_ms", "data.reward")  # fmt: skip
OBJECTS = ("data", "data.context", "data.prediction", "data.result", "data.decision",
           "data.attachments.0")  # fmt: skip
ARRAYS = ("data.concepts", "data.domains", "data.agents_used", "data.insights",
          "data.attachments", "origin")  # fmt: skip
CHOICES = ("event_type", "data.prediction.mode", "data.outcome", "data.source")
EVERYTHING = ("data.plan", "data.result.output")
"""Fields that take any JSON value."""


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the full event with one field replaced."""
    event = copy.deepcopy(FULL)
    holder: Any = event
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        holder = holder[part]
    holder[last] = value
    return event


def refused(event: Any, **options: Any) -> InvalidEvent:
    with pytest.raises(InvalidEvent) as caught:
        validate(event, **options)
    return caught.value


def paths(value: Any, name: str = "") -> set[str]:
    """Return the dotted paths of every field of an event that the contract knows."""
    if name in {"data.context", "data.plan", "data.result.output", "origin"}:
        return {name}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = set()
    for key, item in items:
        below = f"{name}.{key}" if name else str(key)
        found |= {below} | (paths(item, below) if isinstance(item, dict | list) else set())
    return found


def test_a_full_event_is_valid() -> None:
    validate(FULL, now_ms=NOW)


def test_an_event_of_the_required_fields_is_valid() -> None:
    validate({name: FULL[name] for name in REQUIRED}, now_ms=NOW)


def test_this_suite_covers_every_field() -> None:
    covered = {*STRINGS, *BOOLEANS, *NUMBERS, *OBJECTS, *ARRAYS, *CHOICES, *EVERYTHING}
    assert covered == paths(FULL)


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("how", ["absent", "null"])
def test_a_missing_field_is_named(name: str, how: str) -> None:
    event = changed(name, None)
    if how == "absent":
        del event[name]
    error = refused(event)
    assert (error.field, error.reason) == (name, "is missing")


def test_a_missing_uri_is_named_with_its_place() -> None:
    assert (
        refused(changed("data.attachments", [{"uri": "a"}, {}])).field == "data.attachments.1.uri"
    )


@pytest.mark.parametrize(
    "name", sorted((paths(FULL) - {*REQUIRED, "data.attachments.0.uri"}) - {
        path for path in paths(FULL) if path.endswith(".0")
    })
)  # fmt: skip
def test_an_optional_field_may_be_null(name: str) -> None:
    validate(changed(name, None), now_ms=NOW)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in (*STRINGS, *CHOICES) for value in (3, True, ["x"], {"x": 1})]
    + [(name, value) for name in BOOLEANS for value in (0, 1, "true", [True], {})]
    + [(name, value) for name in NUMBERS for value in ("1", True, [1], {})]
    + [(name, value) for name in OBJECTS for value in ("x", 1, True, ["x"])]
    + [(name, value) for name in ARRAYS for value in ("x", 1, True, {"x": 1}, ("x",))],
)
def test_a_mistyped_field_is_named(name: str, value: Any) -> None:
    assert refused(changed(name, value)).field == name


@pytest.mark.parametrize("name", EVERYTHING)
@pytest.mark.parametrize("value", ["x", 1, 1.5, True, ["x"], {"x": 1}])
def test_some_fields_take_anything(name: str, value: Any) -> None:
    validate(changed(name, value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("confidence", 7),
        ("confidence", 1.0000001),
        ("confidence", -0.0000001),
        ("confidence", float("nan")),
        ("confidence", float("inf")),
        ("timestamp", -1),
        ("timestamp", 253_402_300_800_000),
        ("timestamp", 1.5),
        ("timestamp", 1.0),
        ("data.result.gain_ms", -1),
        ("data.result.cost_ms", -0.5),
        ("data.result.execution_time_ms", -1),
        ("data.result.gain_ms", float("nan")),
        ("data.reward", float("nan")),
        ("data.reward", float("-inf")),
        ("event_type", "task_completed"),
        ("data.prediction.mode", "Speculative"),
        ("data.outcome", ""),
        ("data.source", "robot"),
        ("id", "0199c82c-c000-7abc-8def-0123456789a"),
        ("id", "0199c82cc000-7abc-8def-0123456789ab-"),
        ("id", "g199c82c-c000-7abc-8def-0123456789ab"),
        ("id", "0199c82cc0007abc8def0123456789ab\n"),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: Any) -> None:
    assert refused(changed(name, value)).field == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("confidence", 0),
        ("confidence", 1),
        ("timestamp", FIRST_MS),
        ("timestamp", LAST_MS),
        ("id", "0199C82CC0007ABC8DEF0123456789AB"),
        ("tenant", "x" * MAX_IDENTIFIER),
        ("tenant", "𝄞" * MAX_IDENTIFIER),
        ("workflow_id", "a/b=c%d:e f\n\x7f"),
        ("data.query", ""),
        ("data.context", {}),
        ("data.concepts", []),
        ("data.reward", 1e300),
    ],
)
def test_the_edge_of_a_range_is_valid(name: str, value: Any) -> None:
    validate(changed(name, value))


@pytest.mark.parametrize("name", IDENTIFIERS)
@pytest.mark.parametrize("value", ["", "x" * (MAX_IDENTIFIER + 1), "a\x1fb", "\x1f", "a\x00"])
def test_identifiers_are_bounded_and_hold_no_separator(name: str, value: str) -> None:
    assert refused(changed(name, value)).field == name


def test_the_reason_names_what_was_expected_and_found() -> None:
    assert str(refused(changed("confidence", 7))) == (
        "confidence: must be at least 0 and at most 1, not 7"
    )
    assert "speculative, suggestion, explicit" in str(refused(changed("data.prediction.mode", "x")))


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (changed("data.query", "a\x00b"), "data.query"),
        (changed("data.context", {"domain": "\x00"}), "data.context.domain"),
        (changed("data.context", {"a\x00": 1}), "data.context"),
        (changed("data.plan", {"steps": ["fine", {"deep": "\x00"}]}), "data.plan.steps.1.deep"),
        ({**FULL, "mine": "\x00"}, "mine"),
    ],
)
def test_a_nul_byte_is_refused_wherever_it_is(event: dict[str, Any], field: str) -> None:
    error = refused(event)
    assert error.field == field
    assert "NUL" in error.reason


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (changed("tenant", "a\ud800"), "tenant"),
        (changed("data.context", {"domain": "\udfff"}), "data.context.domain"),
        (changed("data.context", {"\ud800": 1}), "data.context"),
    ],
)
def test_half_a_surrogate_pair_is_refused(event: dict[str, Any], field: str) -> None:
    assert refused(event).field == field


def test_a_number_that_json_does_not_have_is_refused_in_unknown_fields_too() -> None:
    assert refused({**FULL, "mine": {"x": [1.0, float("nan")]}}).field == "mine.x.1"


def test_a_key_that_is_no_string_is_refused() -> None:
    assert refused(changed("data.context", {7: "x"})).field == "data.context.7"


def nested(levels: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_depth_is_limited(kind: type) -> None:
    # the event itself is the first level
    validate({**FULL, "mine": nested(MAX_DEPTH - 1, kind)})
    error = refused({**FULL, "mine": nested(MAX_DEPTH, kind)})
    assert error.field.startswith("mine.")
    assert "32 levels" in error.reason


def test_very_deep_nesting_does_not_exhaust_the_stack() -> None:
    assert "nested deeper" in refused({**FULL, "mine": nested(100_000, list)}).reason


def test_unknown_fields_are_allowed_everywhere() -> None:
    event = {**FULL, "mine": {"x": [1, None]}}
    event["data"] = {**FULL["data"], "mine": 1, "prediction": {"mine": 1, "tool_id": "t"}}
    validate(event)


def test_a_timestamp_may_be_an_hour_ahead_and_no_more() -> None:
    validate(changed("timestamp", NOW + MAX_CLOCK_SKEW_MS), now_ms=NOW)
    error = refused(changed("timestamp", NOW + MAX_CLOCK_SKEW_MS + 1), now_ms=NOW)
    assert error.field == "timestamp"
    assert "1.0 hours ahead" in error.reason
    validate(changed("timestamp", NOW + MAX_CLOCK_SKEW_MS + 1))  # no clock given, no such rule


def test_a_timestamp_in_the_year_5000_is_refused() -> None:
    assert refused(changed("timestamp", 95_617_584_000_000), now_ms=NOW).field == "timestamp"


@pytest.mark.parametrize("event", [None, [], "x", 1, 1.5, True, [FULL]])
def test_an_event_is_an_object(event: Any) -> None:
    error = refused(event)
    assert error.field == ""
    assert "JSON object" in error.reason


def test_the_reason_stays_short_for_a_long_value() -> None:
    assert len(str(refused(changed("event_type", "x" * 100_000)))) < 300


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1_790_000_000, "1790000000 reads as seconds; give Unix milliseconds"),
        (1_790_000_000.25, "1790000000.25 reads as seconds; give Unix milliseconds"),
        (NOW * 1000, f"{NOW * 1000} reads as microseconds; give Unix milliseconds"),
        (NOW * 10**6, f"{NOW * 10**6} reads as nanoseconds; give Unix milliseconds"),
        (0, "is before the year 2000 or after the year 9999; give Unix milliseconds"),
        (-1, "is before the year 2000 or after the year 9999; give Unix milliseconds"),
        (FIRST_MS - 1, "is before the year 2000 or after the year 9999; give Unix milliseconds"),
        (10**400, "is before the year 2000 or after the year 9999; give Unix milliseconds"),
    ],
)
def test_a_timestamp_in_another_unit_is_named(value: Any, reason: str) -> None:
    assert str(refused(changed("timestamp", value))) == f"timestamp: {reason}"


@pytest.mark.parametrize(
    "timestamp",
    [
        "2025-01-01",
        "1760000000000",
        datetime(2025, 1, 1, tzinfo=UTC),
        True,
        [1],
        pytest.param(10**400, id="huge"),
        float("nan"),
        -1,
    ],
)
def test_an_invalid_time_is_refused_with_the_expected_form(timestamp: Any) -> None:
    for options in ({}, {"now_ms": NOW}):
        error = refused(changed("timestamp", timestamp), **options)
        assert error.field == "timestamp"
        assert "give Unix milliseconds" in error.reason


@pytest.mark.parametrize("name", ["task_id", "confidence"])
def test_a_start_needs_what_it_is_joined_and_learned_by(name: str) -> None:
    validate(START)
    assert refused({**START, name: None}).field == name
    check_fields({**START, name: None})  # the service stores it, as it always did
