"""Three answers, and how often each is wrong."""

from __future__ import annotations

import pytest

from learners.modes import EXPLICIT, SPECULATIVE, SUGGESTION, counted, mode_of, rates
from learners.outcome import Outcome
from learners.policy import State, Thresholds

BOTH = Thresholds(0.9, 0.6)


@pytest.mark.parametrize(
    ("confidence", "mode"),
    [
        (1.0, SPECULATIVE),
        (0.9, SPECULATIVE),
        (0.89, SUGGESTION),
        (0.6, SUGGESTION),
        (0.5, EXPLICIT),
    ],
)
def test_the_answer_to_a_confidence(confidence: float, mode: str) -> None:
    assert mode_of(confidence, BOTH) == mode


def test_rates_by_mode() -> None:
    counts: State = ()
    for confidence, correct in (
        (0.95, True),
        (0.95, False),
        (0.7, True),
        (0.7, True),
        (0.1, False),
    ):
        counts = counted(counts, Outcome(confidence, bool(correct)), BOTH)
    assert rates(counts) == {
        SPECULATIVE: (2.0, 0.5, None), SUGGESTION: (2.0, 0.0, 1.0), EXPLICIT: (1.0, None, 0.0),
    }  # fmt: skip


def test_what_never_occurred_has_no_rate() -> None:
    assert rates(())[SUGGESTION] == (0.0, None, None)


def test_old_outcomes_fade() -> None:
    counts = counted((), Outcome(1.0, False), BOTH, keep=0.5)
    counts = counted(counts, Outcome(1.0, True), BOTH, keep=0.5)
    assert rates(counts)[SPECULATIVE][:2] == pytest.approx((1.5, 1 / 3))
