"""Three answers, and how often each is wrong."""

from __future__ import annotations

from learners.modes import EXPLICIT, SPECULATIVE, SUGGESTION, rates


def test_rates_by_mode() -> None:
    assert rates((1.0, 0.0, 2.0, 2.0, 2.0, 1.0)) == {
        EXPLICIT: (1.0, None, 0.0), SUGGESTION: (2.0, 0.0, 1.0), SPECULATIVE: (2.0, 0.5, None),
    }  # fmt: skip


def test_a_mode_without_outcomes_has_no_rate() -> None:
    assert rates(())[SUGGESTION] == (0.0, None, None)
