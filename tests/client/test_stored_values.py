"""A truth value in a stored threshold is no number."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.thresholds.threshold import read_value

# fmt: off
DEVIATION = {"slope": -0.2, "intercept": 0.1, "slope_variance": 0.01, "covariance": 0.0,
             "intercept_variance": 0.02, "cold": 0.0, "cold_variance": 0.0, "outcomes": 9.0}
# fmt: on
VALUE: dict[str, Any] = {
    "format": 1,
    "epoch": 1,
    "offset": 1,
    "speculate": 0.9,
    "suggest": 0.5,
    "outcomes": 9,
}  # fmt: skip


@pytest.mark.parametrize("field", VALUE)
def test_a_truth_value_is_no_number(field: str) -> None:
    assert read_value(VALUE) is not None
    assert read_value({**VALUE, field: True}) is None


@pytest.mark.parametrize("format", [1.0, "1", None, 2])
def test_a_format_is_a_whole_number(format: object) -> None:
    assert read_value({**VALUE, "format": format}) is None


@pytest.mark.parametrize("field", DEVIATION)
def test_a_truth_value_in_a_deviation_is_no_number(field: str) -> None:
    sound = read_value({**VALUE, "deviation": DEVIATION})
    assert sound is not None and sound.deviation is not None  # noqa: PT018
    found = read_value({**VALUE, "deviation": {**DEVIATION, field: True}})
    assert found is not None
    assert found.deviation is None
