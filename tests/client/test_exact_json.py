"""Integers of JSON stay what they are, or are refused by name; orjson would round them."""

from __future__ import annotations

import json

import orjson
import pytest

from headstart.events.exact_json import dump_exactly, load_exactly, refuse_large_integers
from headstart.events.schema import InvalidEvent

LARGE = [2**64, 2**80, -(2**63) - 1, 10**300]
FITTING = [0, 2**63, 2**64 - 1, -(2**63), 1.5, 1e300, "1" * 40, None, [True]]


@pytest.mark.parametrize("value", LARGE + FITTING)
def test_values_come_back_as_they_were(value: object) -> None:
    text = json.dumps({"é": [value]})
    assert load_exactly(text) == load_exactly(text.encode()) == {"é": [value]}
    assert load_exactly(dump_exactly({"é": [value]})) == {"é": [value]}


@pytest.mark.parametrize("value", LARGE)
def test_a_large_integer_is_refused_by_name(value: int) -> None:
    with pytest.raises(InvalidEvent, match=r"^data\.context\.0: is an integer beyond 64 bits"):
        refuse_large_integers({"data": {"context": [value]}})


@pytest.mark.parametrize("value", FITTING)
def test_what_fits_is_not_refused(value: object) -> None:
    refuse_large_integers({"data": {"context": value}})


@pytest.mark.parametrize("text", ["", "{", "[" * 1_000 + "1" * 25 + "]" * 1_000, "1" * 400])
def test_what_cannot_be_read_is_an_error_of_orjson(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        load_exactly(text)
