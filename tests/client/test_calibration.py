"""The formula from a calibration, a gain and a cost to the threshold."""

from __future__ import annotations

import re
from math import inf, nan
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.calibration import (
    Calibration,
    LevelDeviation,
    calibrated_threshold,
    coldness,
    combined,
    logit,
    probability,
    threshold,
    wanted,
)
from headstart.thresholds.threshold import Threshold, decode_value, resolve

SURE = Calibration(1.0, 0.0)
variances = st.floats(0, 1)
calibrations = st.builds(
    Calibration, slope=st.floats(-1, 3), intercept=st.floats(-5, 5), slope_variance=variances,
    covariance=st.just(0.0), intercept_variance=variances,
)  # fmt: skip
stakes = st.floats(1e-3, 1e6)


@pytest.mark.parametrize(("gain", "cost"), [(1.0, 1.0), (400.0, 600.0), (1.0, 9.0)])
def test_with_nothing_to_correct_the_threshold_is_where_gain_and_cost_balance(
    gain: float, cost: float
) -> None:
    assert threshold(SURE, gain, cost) == pytest.approx(cost / (gain + cost))


def test_by_hand() -> None:
    # 2 x - 1 = log(3 / 1): x = 1.0493, p = .7406
    assert threshold(Calibration(2.0, -1.0), 1.0, 3.0) == pytest.approx(0.74064, abs=1e-5)
    assert probability(Calibration(2.0, -1.0), 0.74063) == pytest.approx(0.75, abs=1e-4)
    assert logit(0.9) == pytest.approx(2.19722, abs=1e-5)
    assert (coldness(0), coldness(2)) == (1.0, 0.5)


def test_unknown_gain_and_cost_require_the_target_probability() -> None:
    assert threshold(SURE, 0.0, 0.0) == pytest.approx(0.85)
    assert threshold(SURE, 0.0, 1.0) == 1.0


def test_until_a_wrong_guess_was_started_its_cost_counts_as_equal_to_the_gain() -> None:
    assert threshold(SURE, 100.0, 0.0) == pytest.approx(0.5), "not 0, which starts every guess"
    assert calibrated_threshold(100.0, 0.0) == 0.5
    assert threshold(SURE, 99.0, 1.0) == pytest.approx(0.01)


@pytest.mark.parametrize(("gain", "cost"), [(-1.0, 1.0), (1.0, -1.0), (nan, 1.0), (0.0, nan)])
def test_invalid_gain_and_cost_are_refused(gain: float, cost: float) -> None:
    with pytest.raises(ValueError, match="gain and cost"):
        wanted(gain, cost)


@given(calibrations, stakes, stakes)
def test_a_threshold_is_a_probability(known: Calibration, gain: float, cost: float) -> None:
    assert 0.0 <= threshold(known, gain, cost) <= 1.0


@given(calibrations, stakes, stakes, st.floats(1, 100))
def test_a_higher_cost_asks_for_more(
    known: Calibration, gain: float, cost: float, times: float
) -> None:
    sure = known._replace(slope_variance=0.0, intercept_variance=0.0)
    assert threshold(sure, gain, cost * times) >= threshold(sure, gain, cost) - 1e-12


@given(stakes, stakes, st.floats(0, 1))
def test_uncertainty_asks_for_more_where_misses_are_dear(
    gain: float, cost: float, variance: float
) -> None:
    unsure = Calibration(1.0, 0.0, intercept_variance=variance)
    if cost >= gain:
        assert threshold(unsure, gain, cost) >= threshold(SURE, gain, cost)


def test_deviations_of_a_path_add_up() -> None:
    coarse = LevelDeviation(0.1, -0.2, 0.01, 0.0, 0.02, cold=-1.0, cold_variance=0.5, outcomes=90)
    fine = LevelDeviation(-0.3, 0.1, 0.02, 0.001, 0.03, outcomes=2)
    known = combined([coarse, fine])
    assert known == pytest.approx((0.8, -0.6, 0.03, 0.001, 0.175))
    assert combined([coarse], unseen=True) == pytest.approx((1.1, -1.2, 0.01, 0.0, 0.52))


def value(**fields: object) -> bytes:
    known = {"speculate": 0.8, "suggest": 0.5, "epoch": 1, "offset": 2, "outcomes": 3}
    return orjson.dumps({**known, **fields})


def answered(*values: bytes | None) -> Threshold:
    paths = [f"path{place}" for place in range(len(values))]
    return resolve(paths, [decode_value(value) if value else None for value in values])


def test_the_reader_adds_up_the_chain_it_found() -> None:
    coarse = LevelDeviation(0.1, -0.2, 0.01, 0.0, 0.02, cold=-1.0, cold_variance=0.5, outcomes=90)
    fine = LevelDeviation(-0.3, 0.1, 0.02, 0.001, 0.03, outcomes=2)
    raw = [value(deviation=each._asdict()) for each in (fine, coarse)]
    answer = answered(*raw)
    assert answer.calibration == combined([coarse, fine])
    assert answer.speculate_for(1, 9) == threshold(combined([coarse, fine]), 1, 9)
    assert answered(None, raw[1]).calibration == combined([coarse], unseen=True)


@pytest.mark.parametrize("known", [None, Calibration(1.0, 0.0)])
@pytest.mark.parametrize("wrong", ["a", None, True, nan, -1.0])
def test_a_gain_or_cost_that_is_no_number_is_refused_naming_it(
    known: Calibration | None, wrong: Any
) -> None:
    answer = Threshold(0.8, 0.4, calibration=known)
    for name, stakes in (("gain", (wrong, 1)), ("cost", (1, wrong))):
        message = re.escape(f"{name} must be a number of at least 0, not {wrong!r}")
        for kind in (ValueError, TypeError):
            with pytest.raises(kind, match=f"^{message}$"):
                answer.speculate_for(*stakes)


@pytest.mark.parametrize(
    "deviation", [None, {}, {"slope": "x"}, {"slope": inf}, [1], {"unheard_of": 1}]
)
def test_a_value_without_a_calibration_still_answers(deviation: object) -> None:
    answer = answered(value(deviation=deviation), value())
    assert (answer.speculate, answer.calibration) == (0.8, None)
    assert answer.speculate_for(1, 9) == 0.8
