"""Canonical JSON and hashes: equal values have equal hashes, and nothing cannot be hashed."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.episodes.canonical import MAX_CHARACTERS, canonical_json, clean_text
from memory.episodes.hashes import context_hash, fold, hash64, query_hash

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))


@given(JSON)
def test_canonical_json_can_be_stored_and_is_stable(value: Any) -> None:
    text = canonical_json(value)
    assert "\x00" not in text
    text.encode()
    assert canonical_json(orjson.loads(text)) == text or abs(_largest(value)) > 2**53


def _largest(value: Any) -> float:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return max(map(_largest, value), key=abs, default=0)
    return value if isinstance(value, int | float) and not math.isnan(value) else 0


def test_what_is_too_long_or_too_deep_still_equals_itself_only() -> None:
    first, second = ("x" * MAX_CHARACTERS, "y" * MAX_CHARACTERS)
    assert len(canonical_json(first)) < 100
    assert canonical_json(first) == canonical_json(first) != canonical_json(second)
    deep: Any = "end"
    for _ in range(5_000):
        deep = [deep]
    assert "$cut" in canonical_json(deep)


@pytest.mark.parametrize("text", ["a\x00b", "half \ud83d pair", "\udc00", "é\ud800"])
def test_texts_that_postgres_refuses_are_replaced(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode()
    assert "\x00" not in cleaned
    assert len(cleaned) == len(text)


def test_folding_and_hashing() -> None:
    assert fold("  Cancel\tMY\n order ") == fold("ｃａｎｃｅｌ my ORDER")
    assert query_hash("Straße 1") == query_hash("STRASSE  1")
    assert query_hash(" \n") is None
    assert query_hash("\ud800") is not None
    assert hash64("ab", "c") != hash64("a", "bc")
    assert -(2**63) <= hash64("x") < 2**63
    context = {"domain": "retail", "complexity": 1.0, "other": 1}
    assert context_hash("refund", context) == context_hash("refund", context | {"other": 2})
    assert context_hash("refund", context) == context_hash("refund", context | {"complexity": 1})
    assert context_hash("refund", {}) != context_hash("refund", {"domain": ""})
    assert context_hash("refund", {"user": 1}, ["user"]) != context_hash("refund", {}, ["user"])
