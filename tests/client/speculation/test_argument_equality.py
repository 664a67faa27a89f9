"""Two calls have the same arguments only if they are equal as JSON."""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.speculation.argument_equality import same_arguments
from headstart.speculation.calls import GuessedCall
from tests.client.speculation.turns import CONTEXT, Log, found, resolve, speculate

SMALL = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
arguments = st.dictionaries(st.sampled_from("abc"), SMALL, max_size=3)
NUMBER = (
    st.integers(2**63 - 2, 2**63 + 2)
    | st.integers(2**64 - 2, 2**64 + 2)
    | st.integers(10**20, 10**20 + 3)
    | st.integers(0, 1)
    | st.sampled_from([0.0, -0.0, 1.0, 1e20, 2.0**64, math.inf, math.nan])
    | st.booleans()
    | st.none()
)


@given(arguments, arguments)
def test_arguments_are_compared_as_json(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        other, option=orjson.OPT_SORT_KEYS
    )
    assert same_arguments(one, other) == same
    assert same_arguments(orjson.dumps(one).decode(), other) == same
    assert same_arguments(dict(reversed(one.items())), one)


@given(NUMBER, NUMBER, st.booleans(), st.booleans())
def test_numbers_are_the_same_only_of_one_type_and_value(
    one: Any, other: Any, one_as_text: bool, other_as_text: bool
) -> None:
    same = repr(one) != "nan" and (type(one), repr(one)) == (type(other), repr(other))
    guessed: object = {"a": [one]}
    real: object = {"a": [other]}
    guessed = json.dumps(guessed) if one_as_text else guessed
    real = json.dumps(real) if other_as_text else real
    assert same_arguments(guessed, real) is same
    assert same_arguments(real, guessed) is same


class Unit(Enum):
    """An argument that is an enum."""

    KM = "km"


@dataclass
class Query:
    """An argument that is a dataclass."""

    text: str
    limit: object
    _page: int = 1


AT = datetime(2026, 11, 1, tzinfo=UTC)
SAME: list[tuple[object, object]] = [
    (None, {}), ("", "{}"), ("null", None), ({"b": 1, "a": [2]}, '{"a": [2], "b": 1}'),
    ('{"a": 1.10}', '{"a": 1.1}'), ('{"a": 1.10}', {"a": 1.1}), ('{"a": 1e2}', '{"a": 100.0}'),
    ({"a": (1, 2)}, {"a": [1, 2]}), ("plain text", "plain text"), ({"a": b"x"}, {"a": b"x"}),
    ({"a": 2**64}, f'{{"a": {2**64}}}'), ({"a": UUID(int=1)}, f'{{"a": "{UUID(int=1)}"}}'),
    ({"a": AT}, {"a": AT.isoformat()}), ({"a": Unit.KM}, {"a": "km"}), ({1: "a"}, {1: "a"}),
    (Query("a", 2), Query("a", 2)), ({"a": Decimal("1.10")}, {"a": Decimal("1.1")}),
    ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'), ("1" * 5000, "1" * 5000),
]  # fmt: skip
DIFFERENT: list[tuple[object, object]] = [
    (0, None), (False, None), ({"a": 1}, {"a": 1.0}), ({"a": True}, {"a": 1}), ("1", "1.0"),
    ('{"account": 112233445566778899001}', '{"account": 112233445566778899002}'),
    ({"q": math.nan}, {"q": None}), ({"q": math.inf}, {"q": None}), ({"q": math.nan}, "{}"),
    ({"q": math.inf}, {"q": math.nan}), ({"q": math.inf}, {"q": -math.inf}),
    ({"f": 2**64, "ok": True}, {"f": 2**64, "ok": 1}), ({"q": Decimal(1)}, {"q": 1}),
    ('{"a": 0.1}', '{"a": 0.1000000000000000055}'), ('{"a": 1e400}', '{"a": 2e400}'),
    ('{"a": 1e-400}', '{"a": 0.0}'), ('{"a": 1e99999999999999999999}', '{"a": 1e400}'),
    ('{"a": 0.0}', '{"a": -0.0}'), ('{"a": 1, "a": 2}', '{"a": 2}'), ('{"a": 2, "a": 2}', {"a": 2}),
    ("1" * 5000, "1" * 4999 + "2"), ("plain", '"plain"'), ({"a": object()}, {"a": object()}),
    (Query("a", 2**64), Query("a", 2**65)), (Query("a", 1), Query("a", True)),
    (Query("a", 1, 1), Query("a", 1, 2)), ({1: "a"}, {"1": "a"}), ({1: "a"}, {True: "a"}),
    ({Unit.KM: 1, "km": 2}, {"km": 2}), ({"a": b"x"}, {"a": "x"}), ({}, []), ("{}", "[]"),
    ({"a": {1, 2}}, {"a": {1, 2}}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_arguments(one: object, other: object) -> None:
    assert same_arguments(one, other)
    assert same_arguments(other, one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_arguments(one: object, other: object) -> None:
    assert not same_arguments(one, other)
    assert not same_arguments(other, one)


@pytest.mark.parametrize("value", [math.nan, Decimal("nan"), Decimal("snan"), "NaN"])
def test_nan_does_not_equal_itself(value: object) -> None:
    given = '{"a": NaN}' if value == "NaN" else {"a": value}
    assert not same_arguments(given, given)


def test_an_object_that_json_has_no_form_for_equals_itself_only() -> None:
    marker = object()
    assert same_arguments({"a": marker}, {"a": marker})


@pytest.mark.parametrize("value", [{1, 2}, bytearray(b"x"), deque([1])])
def test_a_collection_that_can_be_changed_equals_nothing(value: object) -> None:
    assert not same_arguments({"a": value}, {"a": value})


def test_arguments_that_are_changed_after_the_guess_are_a_miss() -> None:
    async def test(speculator: Any, log: Log) -> None:
        arguments: dict[str, Any] = {"q": "flights to", "filters": [{"stops": 0}]}
        made: list[Any] = []

        async def search(tool: str, given: Any) -> str:
            await asyncio.sleep(0)
            made.append(given)
            return "found"

        guess = GuessedCall("search", arguments, 0.99)
        async with speculator.turn(CONTEXT, [guess], search) as trying:
            arguments["filters"][0]["stops"] = 1
            await asyncio.sleep(0)
            assert not (await resolve(trying, "search", arguments)).hit
        assert made == [{"q": "flights to", "filters": [{"stops": 0}]}]

    speculate(test)


def test_what_cannot_be_compared_differs() -> None:
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    assert not same_arguments(cycle, cycle)
    deep = "[" * 100_000 + "]" * 100_000
    assert not same_arguments(deep, "[]")


def test_a_call_with_another_large_number_is_a_miss() -> None:
    async def test(speculator: Any, log: Log) -> None:
        context = {"workflow_type": "refund", "workflow_id": "w1", "domain": "retail"}
        guessed = '{"account": 112233445566778899001}'
        guess = GuessedCall("search", guessed, 0.99)
        trying = speculator.turn(context, [guess], lambda *call: found())
        async with trying:
            assert trying.started
            real = '{"account": 112233445566778899002}'
            assert not (await resolve(trying, "search", real)).hit

    speculate(test)
