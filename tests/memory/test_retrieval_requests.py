"""Requests that make no sense are refused with the field's name; fusion is exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.ranking.rank_fusion import fuse_ranks
from memory.retrieval.attempts import attempts
from memory.retrieval.embedding import VectorModel
from memory.retrieval.fusion import aged, diversify
from memory.retrieval.request import InvalidQuery, MemoryQuery
from memory.retrieval.search import QueryVector
from memory.retrieval.words import MOST_TRIED, WordShares, any_of, more_words, rare_words
from memory.store.halfvec import unpack_halfvec

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the query is empty; mode hybrid needs a text"),
        ({"text": " \t\n"}, "the query is empty"),
        ({"mode": "exact"}, "needs a text, a context, or both"),
        ({"mode": "exact", "context": {"a": 1}}, "needs a workflow type"),
        ({"mode": "fuzzy", "text": "a"}, "mode fuzzy needs a context"),
        ({"mode": "fuzzy", "context": {}}, "mode fuzzy needs a context"),
        ({"mode": "fuzzy", "context": {str(n): n for n in range(10_000)}}, "has 10,000 keys"),
        ({"text": "a", "mode": "telepathic"}, "'telepathic' is no mode; it is one of: exact,"),
        ({"text": "a", "k": 0}, "k must be a whole number from 1 to 500, not 0"),
        ({"text": "a", "k": 10_000}, "not 10000"),
        ({"text": "a", "k": True}, "k must be"),
        ({"text": "a", "k": 2.0}, "k must be"),
        ({"text": "a", "event_types": ["task_started"]}, "'task_started' is no event type"),
        ({"text": "a", "event_types": "task_complete"}, "event_types must be a list"),
        ({"text": "a", "outcome": "great"}, "'great' is no outcome; it is one of: success,"),
        ({"text": "a", "min_confidence": 1.5}, "min_confidence must be a number from 0 to 1"),
        ({"text": "a", "min_confidence": float("nan")}, "min_confidence must be a number"),
        ({"text": "a", "since": -1}, "since must be a number"),
        ({"text": "a", "diversity": None}, "diversity must be a number"),
        ({"text": "a", "diversity": 10**400}, "diversity must be a number from 0 to 1, not 1000"),
        ({"text": "a", "diversity": 0.3, "mode": "lexical"}, "it needs mode vector or hybrid"),
        ({"text": "a", "since": 10**400}, "since must be a number"),
        ({"text": "a", "k": 10**5000}, "from 1 to 500, not such an int"),
        ({"text": "a", "half_life_days": 0}, "half_life_days must be a number"),
        ({"text": "a", "tenant": ""}, "tenant must be a text"),
        ({"text": "a", "tenant": "a\x1fb"}, "tenant must not contain"),
        ({"text": "a", "tool": "t" * 257}, "tool must be a text"),
        ({"text": "a", "concepts": ["x"] * 101}, "concepts has 101 entries"),
        ({"text": "a", "concepts": ["\ud800"]}, "concepts must not contain"),
        ({"text": "a", "domains": [3]}, "domains must be a text"),
        ({"text": b"a"}, "text must be a string"),
        ({"text": "a", "context": ["a"]}, "context must be an object"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        MemoryQuery(**given)
    assert said in str(refused.value)


def test_ranks_are_fused_by_their_reciprocals() -> None:
    fused = fuse_ranks([[1, 2, 3], [3, 1], []])
    assert list(fused) == [1, 3, 2]
    assert fused[1] == pytest.approx(1 / 61 + 1 / 62)
    assert fused[3] == pytest.approx(1 / 63 + 1 / 61)


def test_a_score_is_halved_at_its_half_life() -> None:
    assert aged(0.8, 10 * DAY_MS, 10) == pytest.approx(0.4)
    assert aged(0.8, -5, 10) == 0.8
    assert aged(-0.3, 10 * DAY_MS, 10) == -0.3


def test_diverse_choices_leave_out_what_is_alike() -> None:
    rows = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    assert diversify([1.0, 0.9, 0.5], rows, 3, 0.0) == [0, 1, 2]
    assert diversify([1.0, 0.9, 0.5], rows, 2, 0.6) == [0, 2]


@given(st.lists(st.floats(-1, 1), max_size=12), st.floats(0, 1), st.integers(1, 15))
def test_diversifying_loses_and_doubles_nothing(
    scores: list[float], diversity: float, k: int
) -> None:
    rows = np.zeros((len(scores), 4), dtype=np.float32)
    chosen = diversify(scores, rows, k, diversity)
    assert len(chosen) == len(set(chosen)) == min(k, len(scores))


def test_the_binary_form_of_a_halfvec_is_read() -> None:
    raw = b"\0\x02\0\0" + np.array([1.5, -0.25], dtype=">f2").tobytes()
    assert unpack_halfvec(raw).tolist() == [1.5, -0.25]


def test_rare_words_are_chosen_until_they_find_enough() -> None:
    shares = WordShares(10_000, {"the": 0.9, "cancel": 0.1, "flight": 0.03}, 0.0)
    words = ["the", "cancel", "flight", "unheard"]
    assert rare_words(words, shares, 400) == ["unheard", "flight", "cancel"]
    assert rare_words(words, shares, 200) == ["unheard", "flight"]
    assert rare_words(["the"], shares, 10) == ["the"]
    assert rare_words([], shares) == []
    assert len(rare_words(map(str, range(1_000)), shares, 10**6)) == 32


def test_where_rare_words_find_too_few_others_are_tried_up_to_a_number() -> None:
    shares = WordShares(10_000, {f"known-{n:03}": (n + 1) / 500 for n in range(200)}, 0.0)
    unknown = [f"unknown-{n}" for n in range(1_400)]
    rare = rare_words([*shares.shares, *unknown], shares, 10**6)
    assert rare == sorted(unknown, key=lambda word: (-len(word), word))[:32]
    tried = more_words([*shares.shares, *unknown], rare, shares)
    assert tried == [*rare, *sorted(shares.shares)[: MOST_TRIED - 32]]
    few = more_words(["known-001", "other", *rare], rare, shares)
    assert few == [*rare, "known-001", "other"]


def test_a_hybrid_search_leaves_out_the_words_and_then_the_vectors() -> None:
    vector = QueryVector(VectorModel(1, "words", 16), None)
    first, second, third = attempts("hybrid", vector, 2.0)
    assert (first.vector, first.words, first.timeout_s, first.missing) == (vector, True, 1.0, ())
    assert (second.vector, second.words, second.timeout_s) == (vector, False, 0.5)
    assert second.missing == ("words were not searched: Postgres did not answer within 1 s",)
    assert (third.vector, third.words) == (None, True)
    assert third.missing == ("vectors were not searched: Postgres did not answer within 0.5 s",)
    assert first.timeout_s + second.timeout_s + third.timeout_s == 2.0
    for mode, vectors in (("hybrid", None), ("lexical", None), ("vector", vector)):
        (only,) = attempts(mode, vectors, 2.0)  # type: ignore[arg-type]
        assert (only.vector, only.words, only.timeout_s, only.missing) == (vectors, True, 2.0, ())


def test_words_are_quoted_in_a_tsquery() -> None:
    assert any_of(["a", "it's", "back\\slash", "x & !y"]) == (
        r"'a' | 'it''s' | 'back\\slash' | 'x & !y'"
    )
