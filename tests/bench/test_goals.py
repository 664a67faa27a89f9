"""Goals: of what was measured, what was reached."""

from __future__ import annotations

from bench.support.learner_goals import LEAST, SPEED, goals
from learners.registry import DEFAULT, POLICIES


def test_figures_are_compared_with_goals() -> None:
    speed = {"us per update of 4 levels": 6.0, "us per threshold": 2.1}
    found = goals({DEFAULT: {"calibrated": 0.98, "sparse": 0.89, **speed}, "td": speed})
    assert [(each.policy, each.figure, each.met) for each in found] == [
        (DEFAULT, "calibrated", True), (DEFAULT, "sparse", False), (DEFAULT, SPEED, False),
        ("td", SPEED, False),
    ]  # fmt: skip
    assert next(each.found for each in found if each.figure == SPEED) == 8.1


def test_goals_are_of_policies_that_there_are() -> None:
    assert LEAST.keys() <= POLICIES.keys()
