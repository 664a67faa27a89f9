"""`headstart contexts`: how it shows what was counted."""

from __future__ import annotations

import pytest

from cli.thresholds.contexts import _seconds


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0.0, "0.00"), (40.0, "0.04"), (250.0, "0.25"), (350.0, "0.35"), (9_990.0, "9.99"),
        (9_999.0, "10.0"), (10_000.0, "10.0"), (-250.0, "-0.25"), (1_234_560.0, "1,234.6"),
    ],
)  # fmt: skip
def test_small_times_are_shown_with_more_decimals(ms: float, shown: str) -> None:
    assert _seconds(ms) == shown
