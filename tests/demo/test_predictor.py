"""Laws of the back-off predictor, and its formula worked by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.predictor import ORDERS, PredictedTool, ToolPredictor
from demo.traces import END

RUNS = st.lists(st.lists(st.sampled_from("abcd"), max_size=6), max_size=8)


def learned(runs: list[list[str]], domain: str = "d") -> ToolPredictor:
    predictor = ToolPredictor()
    for tools in runs:
        for at, actual in enumerate([*tools, END]):
            predictor.learn(domain, tools[:at], actual)
    return predictor


def test_without_data_there_is_no_guess() -> None:
    assert ToolPredictor().predict("d", []) is None
    assert ToolPredictor().probabilities("d", []) == {END: 1.0}


def test_the_formula_by_hand() -> None:
    """Runs a b and a c: orders 0, 1 and 2 after [a], in exact fractions."""
    predictor = learned([["a", "b"], ["a", "c"]])
    base = Fraction(1, 4)
    unigram = {"a": 2, "b": 1, "c": 1, END: 2}
    zero = {t: (n + base) / (6 + 1) for t, n in unigram.items()}
    after_a = {"a": 0, "b": 1, "c": 1, END: 0}
    one = {t: (n + zero[t]) / (2 + 1) for t, n in after_a.items()}
    two = {t: (n + one[t]) / (2 + 1) for t, n in after_a.items()}
    for order, expected in enumerate((zero, one, two)):
        assert predictor.probabilities("d", ["a"], order) == pytest.approx(
            {t: float(p) for t, p in expected.items()}
        )
    assert predictor.predict("d", ["a"]) == PredictedTool("b", pytest.approx(float(two["b"])))


def test_an_unseen_context_backs_off_to_the_order_below() -> None:
    predictor = learned([["a", "b"], ["c", "b"]])
    assert predictor.probabilities("d", ["x", "a"]) == predictor.probabilities("d", ["x", "a"], 1)
    assert predictor.probabilities("d", ["x", "y"]) == predictor.probabilities("d", [], 0)


def test_a_likely_end_gives_no_guess() -> None:
    predictor = learned([["a"]] * 5)
    assert predictor.predict("d", ["a"]) is None
    guess = predictor.predict("d", [])
    assert guess is not None
    assert guess.tool == "a"


def test_domains_learn_apart() -> None:
    predictor = learned([["a", "b"]] * 3, domain="retail")
    assert predictor.predict("airline", ["a"]) is None
    assert predictor.probabilities("airline", ["a"]) == {END: 1.0}


def test_only_the_last_two_tools_count() -> None:
    predictor = learned([["a", "b", "c"]] * 3)
    assert predictor.predict("d", ["x", "y", "a", "b"]) == predictor.predict("d", ["a", "b"])


@given(runs=RUNS, history=st.lists(st.sampled_from("abcde"), max_size=4))
def test_every_order_sums_to_one(runs: list[list[str]], history: list[str]) -> None:
    predictor = learned(runs)
    for order in range(ORDERS + 1):
        probabilities = predictor.probabilities("d", history, order)
        assert sum(probabilities.values()) == pytest.approx(1)
        assert all(p > 0 for p in probabilities.values())


@given(runs=RUNS, history=st.lists(st.sampled_from("abcde"), max_size=4))
def test_the_guess_is_the_top_tool_and_the_first_of_its_equals(
    runs: list[list[str]], history: list[str]
) -> None:
    predictor = learned(runs)
    probabilities = predictor.probabilities("d", history)
    top = max(probabilities.values())
    first = min(tool for tool, p in probabilities.items() if p == top)
    guess = predictor.predict("d", history)
    assert guess == (None if first == END else PredictedTool(first, top))


@given(runs=RUNS)
def test_learning_twice_alike_guesses_alike(runs: list[list[str]]) -> None:
    one, two = learned(runs), learned(runs)
    assert one.predict("d", ["a"]) == two.predict("d", ["a"])
