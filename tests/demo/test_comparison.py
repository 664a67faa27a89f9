"""Laws of the comparison: every policy over the same predictions, and a winner that is one."""

from __future__ import annotations

from dataclasses import replace
from math import isinf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.accounting import JudgedGuess, net_gain
from demo.comparison import LEARNED, POINTS, POLICIES, best_constant, compare
from demo.report import sentence

JUDGED = st.lists(
    st.builds(
        JudgedGuess,
        path=st.sampled_from(["workflow_type=a", "workflow_type=a/domain=b"]),
        confidence=st.floats(0, 1),
        threshold=st.none() | st.floats(0, 1),
        speculated=st.booleans(),
        correct=st.booleans(),
        gain_ms=st.floats(0, 1e5),
        cost_ms=st.floats(0, 1e5),
        at=st.integers(1_750_000_000_000, 1_750_000_060_000),
        workflow=st.sampled_from(["w1", "w2", "w3"]),
    ),
    max_size=30,
)


def judged(n: int, threshold: float = 0.6) -> list[JudgedGuess]:
    """Calibrated guesses whose executors started what is worth it."""
    draw = Random(3)
    found = []
    for number in range(n):
        confidence = draw.random()
        found.append(
            JudgedGuess("workflow_type=a", confidence, threshold, confidence >= threshold,
                   draw.random() < confidence, 400.0, 600.0, 1_750_000_000_000 + 10 * number,
                   f"w{number // 5}")
        )  # fmt: skip
    return found


@given(JUDGED)
def test_no_constant_earns_more_than_the_best(predictions: list[JudgedGuess]) -> None:
    best = best_constant(predictions)
    earned = net_gain(predictions, lambda each: each.confidence >= best)
    for constant in {each.confidence for each in predictions} | {2.0}:
        other = net_gain(predictions, lambda each, constant=constant: each.confidence >= constant)
        assert other <= earned + 1e-6


def test_if_every_guess_is_wrong_starting_none_is_best() -> None:
    wrong = [JudgedGuess("a", 0.9, 0.5, True, False, 1.0, 1.0)]
    assert isinf(best_constant(wrong))
    assert compare(wrong)["best_fixed"] == 0.0


@given(JUDGED)
def test_the_winner_earned_most_and_courses_end_at_the_sums(predictions: list[JudgedGuess]) -> None:
    found = compare(predictions)
    utilities = {name: each["utility"] for name, each in found["policies"].items()}
    assert utilities[found["winner"]] == max(utilities.values())
    assert LEARNED in (found["winner"], found["against"])
    assert found["lead"] >= 0.0
    for name, policy in POLICIES.items():
        assert utilities[name] == pytest.approx(1_000 * net_gain(predictions, policy), abs=1e-3)
        if predictions:
            assert found["gained"][name][-1] == pytest.approx(utilities[name], abs=1e-3)
    assert sum(each["predictions"] for each in found["contexts"]) == len(predictions)
    assert sum(each["count"] for each in found["bins"]) == len(predictions)
    for each in found["bins"]:
        assert (each["confidence"] is None) == (each["count"] == 0)
        assert 0.0 <= (each["confidence"] or 0.0) <= 1.0


def test_learned_thresholds_surely_beat_starting_every_guess() -> None:
    found = compare(judged(4_000))
    assert found["winner"] == LEARNED
    low, high = found["lead_interval"]
    assert 0.0 < low < found["lead"] < high
    assert len(found["at"]) <= POINTS
    assert found["at"][-1] == pytest.approx(39.99)
    assert found["best_constant"] == pytest.approx(0.6, abs=0.1)


def test_unstartable_guesses_are_in_no_figure() -> None:
    made = judged(200)
    held_back = [replace(each, speculated=False, not_startable="mode") for each in made]
    found, alone = compare([*made, *held_back]), compare(made)
    assert found["not_startable"] == {"guesses": 200, "reasons": {"mode": 200}}
    assert found | {"not_startable": None} == alone | {"not_startable": None}
    assert "200 guesses that no policy could have started" in sentence(found)
