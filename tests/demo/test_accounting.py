"""Laws of the accounting: four policies, one function, the same judged predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.accounting import (
    FIXED_THRESHOLD,
    JudgedGuess,
    always,
    as_executed,
    fixed,
    net_gain,
    never,
    summarise,
)

UNIT = st.floats(0, 1)
MILLISECONDS = st.floats(0, 1e5)
JUDGED = st.lists(
    st.builds(
        JudgedGuess,
        path=st.sampled_from(["workflow_type=a", "workflow_type=a/domain=b"]),
        confidence=UNIT,
        threshold=st.none() | UNIT,
        speculated=st.booleans(),
        correct=st.booleans(),
        gain_ms=MILLISECONDS,
        cost_ms=MILLISECONDS,
    ),
    max_size=30,
)


def judged(confidence: float, speculated: bool, correct: bool) -> JudgedGuess:
    return JudgedGuess("workflow_type=a", confidence, 0.6, speculated, correct, 400.0, 600.0)


def test_a_summary_by_hand() -> None:
    summary = summarise(
        [
            judged(0.95, speculated=True, correct=True),
            judged(0.70, speculated=True, correct=True),
            judged(0.92, speculated=True, correct=False),
            judged(0.91, speculated=False, correct=True),
            judged(0.20, speculated=False, correct=False),
        ]
    )
    assert (summary.predictions, summary.hits, summary.misses) == (5, 2, 1)
    assert summary.hit_rate == pytest.approx(2 / 3)
    assert summary.net_gain_s == pytest.approx(0.4 + 0.4 - 0.6)
    assert summary.net_gain_always_s == pytest.approx(3 * 0.4 - 2 * 0.6)
    assert summary.net_gain_never_s == 0.0
    assert summary.net_gain_fixed_s == pytest.approx(0.4 - 0.6)


def test_nothing_speculated_has_no_hit_rate() -> None:
    assert summarise([]).hit_rate is None
    assert summarise([judged(0.5, speculated=False, correct=True)]).hit_rate is None


def test_the_fixed_threshold_is_the_untaught_default() -> None:
    assert FIXED_THRESHOLD == 0.92


@given(predictions=JUDGED)
def test_always_earns_all_gains_and_pays_all_costs(predictions: list[JudgedGuess]) -> None:
    gains = sum(p.gain_ms for p in predictions if p.correct)
    costs = sum(p.cost_ms for p in predictions if not p.correct)
    expected = pytest.approx((gains - costs) / 1_000, abs=1e-6)
    assert net_gain(predictions, always) == expected


@given(predictions=JUDGED)
def test_never_earns_nothing(predictions: list[JudgedGuess]) -> None:
    assert net_gain(predictions, never) == 0.0


@given(predictions=JUDGED)
def test_a_policy_and_its_opposite_share_out_always(predictions: list[JudgedGuess]) -> None:
    for policy in (as_executed, fixed):
        rest = net_gain(predictions, lambda p, policy=policy: not policy(p))
        assert net_gain(predictions, policy) + rest == pytest.approx(
            net_gain(predictions, always), abs=1e-6
        )


@given(predictions=JUDGED, random=st.randoms(use_true_random=False))
def test_the_order_of_predictions_does_not_matter(predictions: list[JudgedGuess], random) -> None:
    shuffled = predictions.copy()
    random.shuffle(shuffled)
    assert summarise(shuffled) == summarise(predictions)


@given(predictions=JUDGED)
def test_the_summary_is_the_same_function(predictions: list[JudgedGuess]) -> None:
    summary = summarise(iter(predictions))
    assert summary.net_gain_s == net_gain(predictions, as_executed)
    assert summary.net_gain_fixed_s == net_gain(predictions, fixed)
    assert summary.hits + summary.misses == sum(p.speculated for p in predictions)


def test_unstartable_guesses_are_counted_separately() -> None:
    startable = judged(0.95, speculated=True, correct=True)
    held_back = replace(startable, speculated=False, not_startable="mode")
    found = summarise([startable, held_back, held_back])
    assert (found.predictions, found.hits) == (1, 1)
    assert found.net_gain_always_s == found.net_gain_fixed_s == pytest.approx(0.4)
    assert found.not_startable == {"mode": 2}


def test_the_basis_of_figures_is_counted() -> None:
    made = judged(0.95, speculated=True, correct=True)
    found = summarise([made, replace(made, assumed="a"), replace(made, assumed="a")])
    assert found.assumed == {"a": 2}
