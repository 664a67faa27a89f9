"""Assignment to arms: the same everywhere and for ever, by shares, independent of other tests."""

from __future__ import annotations

from collections import Counter

import pytest

import headstart
from headstart.experiments import GROUPS, assignment, workflow_group

SHARES = {"control": 75, "bolder": 25}
PINNED = [*map({"c": "control", "b": "bolder"}.get, "cccccccbcccc")]
IDS = [f"run-{number}" for number in range(20_000)]


def test_an_arm_never_changes() -> None:
    """Pinned: old logs are evaluated by the assignments that executors had then."""
    arms = [headstart.arm_of("bolder", SHARES, each) for each in IDS[:12]]
    assert arms == PINNED


def test_shares_are_kept_and_tests_are_independent() -> None:
    one = [headstart.arm_of("bolder", SHARES, each) for each in IDS]
    other = [headstart.arm_of("timid", SHARES, each) for each in IDS]
    assert Counter(one)["bolder"] / len(IDS) == pytest.approx(0.25, abs=0.02)
    both = Counter(zip(one, other, strict=True))["bolder", "bolder"] / len(IDS)
    assert both == pytest.approx(0.25 * 0.25, abs=0.02)
    assert Counter(assignment("bolder", SHARES)) == {"control": 768, "bolder": 256}


def test_every_group_has_workflows() -> None:
    assert {workflow_group(each) for each in IDS} == set(range(GROUPS))


@pytest.mark.parametrize("shares", [{}, {"a": 0}, {"a": 2, "b": -1}])
def test_shares_that_make_no_sense(shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        headstart.arm_of("x", shares, "run")


def test_the_order_of_the_arms_has_no_influence() -> None:
    one = {"control": 70, "bolder": 30, "timid": 25}
    other = {name: one[name] for name in ("timid", "bolder", "control")}
    assert assignment("bolder", one) == assignment("bolder", other)
    arms = [headstart.arm_of("bolder", one, each) for each in IDS[:1_000]]
    assert arms == [headstart.arm_of("bolder", other, each) for each in IDS[:1_000]]
