"""Sequences and their similarity, keys of calls, and clusters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.prediction.interface import ToolCall
from memory.cases.case import call_key, call_parts, words
from memory.cases.clusters import clusters, wilson_interval
from memory.cases.sequences import MOST_CALLS, SequenceTable
from memory.cases.similarities import SimilarityTable
from memory.episodes.hashes import fold
from memory.ranking.typicality import Typicality
from tests.memory.run_cases import case

SEQUENCES = st.lists(st.lists(st.sampled_from("abcd"), max_size=9), min_size=1, max_size=12)


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        corner, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (left != right))
    return row[-1]


def similarity(one: Sequence[str], other: Sequence[str]) -> float:
    return 1 - edit_distance(one, other) / max(len(one), len(other), 1)


@given(SEQUENCES)
def test_similarities_are_those_of_edit_distance(sequences: list[list[str]]) -> None:
    table = SequenceTable()
    numbers = np.array([table.add(each) for each in sequences])
    for one, number in zip(sequences, numbers, strict=True):
        found = table.similarities(int(number), numbers)
        expected = [similarity(one, other) for other in sequences]
        assert found == pytest.approx(expected, abs=1e-6)


def test_a_long_sequence_is_cut_and_compared() -> None:
    table = SequenceTable()
    long, longer = (table.add(["a"] * size) for size in (MOST_CALLS, MOST_CALLS + 9))
    assert long == longer
    short = table.add([])
    assert table.similarities(long, np.array([long, short])).tolist() == [1, 0]


@given(SEQUENCES, st.integers(2, 16))
def test_a_full_table_forgets_the_oldest_and_still_compares(
    sequences: list[list[str]], most: int
) -> None:
    table = SequenceTable()
    alike = SimilarityTable(table, most)
    numbers = []
    for each in sequences:
        numbers.append(table.add(each))
        alike.add(numbers[-1])
    found = alike.between(np.array(numbers), np.array(numbers))
    expected = [[similarity(one, other) for other in sequences] for one in sequences]
    assert found == pytest.approx(np.array(expected), abs=1e-6)


@given(SEQUENCES, st.data())
def test_typicality_is_the_mean_similarity_to_the_group(
    sequences: list[list[str]], data: st.DataObject
) -> None:
    table = SequenceTable()
    typical = Typicality(SimilarityTable(table))
    groups = data.draw(st.lists(st.integers(0, 2), min_size=12, max_size=12))
    members: dict[int, list[int]] = {}
    for group, each in zip(groups, sequences, strict=False):
        number = table.add(each)
        typical.add(group, number)
        members.setdefault(group, []).append(number)
    for group, numbers in members.items():
        left = data.draw(st.integers(0, len(numbers)))
        found = typical.scores(group, np.array(numbers[:left], np.int64))
        kept = numbers[left:]
        assert (found is None) == (not kept)
        if found is not None:
            assert set(found[0].tolist()) == set(kept)
            for number, score in zip(*found, strict=True):
                expected = table.similarities(int(number), np.array(kept)).mean()
                assert score == pytest.approx(expected, abs=1e-9)


def test_calls_are_equal_in_any_order_of_their_arguments() -> None:
    one, other = ToolCall("t", {"a": 1, "b": [2]}), ToolCall("t", {"b": [2], "a": 1})
    assert call_key(one) == call_key(other)
    assert call_key(one) != call_key(ToolCall("t", {"a": 1, "b": [3]}))
    assert len(call_parts(one) & call_parts(ToolCall("t", {"a": 1}))) == 2


def test_texts_are_folded() -> None:
    assert fold("  CANCEL\u3000my ﬂight ") == "cancel my flight"
    assert words("Cancel, please: #W42!") == ["cancel", "please", "w42"]


def test_clusters_have_support_success_and_a_contrast() -> None:
    good = [case(n, "q", ("a", "b"), reward=1.0, writer=f"w{n}") for n in range(3)]
    bad = case(3, "q", ("a",), reward=0.0)
    first, second = clusters([good[0], bad, *good[1:]], [1, 1, 1, 1])
    assert (first.support, first.writers, first.weight, first.success_rate) == (3, 3, 0.75, 1.0)
    assert first.success_interval == pytest.approx((0.4385, 1.0), abs=1e-3)
    assert first.contrast is second.contrast is bad
    assert second.success_rate == 0
    assert clusters([], []) == []
    assert len(clusters([case(n, "q", (str(n),)) for n in range(9)], [1] * 9)) == 4


def test_an_interval_narrows_with_the_cases() -> None:
    few, many = wilson_interval(5, 10), wilson_interval(500, 1_000)
    assert few[0] < many[0] < 0.5 < many[1] < few[1]
