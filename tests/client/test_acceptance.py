"""The quick yes: never for what the check refuses, and yes for what executors emit."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.events.fast_validation import is_surely_valid
from headstart.events.schema import MAX_CLOCK_SKEW_MS, InvalidEvent
from headstart.events.validation import validate
from tests.sample_event import FULL, NOW

GOLDEN = Path(__file__).parents[2] / "topics" / "golden"

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["a\x00b", "a\x1fb", "x" * 257, "\ud800", "", "speculative", b"bytes"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in an event, the event itself not."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in items:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


PLACES = places(FULL)


@settings(max_examples=600)
@given(st.lists(st.tuples(st.sampled_from(PLACES), anything), max_size=3), st.booleans(),
       st.sampled_from(["task_complete", "speculation_start"]))  # fmt: skip
def test_fast_validation_never_accepts_what_validate_refuses(
    changes: list[tuple[tuple[Any, ...], Any]], late: bool, kind: str
) -> None:
    event = {**copy.deepcopy(FULL), "event_type": kind}
    for path, value in changes:
        holder: Any = event
        try:
            for part in path[:-1]:
                holder = holder[part]
            holder[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    now = NOW - MAX_CLOCK_SKEW_MS - late
    try:
        body = orjson.dumps(event)
    except TypeError:
        return
    if is_surely_valid(event, body, now):
        validate(event, now_ms=now)


def accepted(event: Any) -> bool:
    return is_surely_valid(event, orjson.dumps(event), NOW)


def test_it_accepts_a_full_event() -> None:
    full = {name: value for name, value in FULL.items() if name != "origin"}
    assert accepted(full)
    assert accepted({**full, "user_id": None, "data": {"result": {"output": None}}})


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.stem)
def test_it_accepts_the_golden_events(file: Path) -> None:
    found = orjson.loads(file.read_bytes())
    for event in found if isinstance(found, list) else [found]:
        if "event_type" in event:
            event.pop("origin", None)  # emitters write their own
            assert is_surely_valid(event, orjson.dumps(event), event["timestamp"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_doubted(value: float) -> None:
    event = {**FULL, "mine": {"deep": [value]}}
    assert not accepted(event)
    with pytest.raises(InvalidEvent, match=r"mine\.deep"):
        validate(event, now_ms=NOW)
