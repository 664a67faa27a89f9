"""The boost of confidence of source documents 000 and 001, as an option: +2 % a past success.

Measured on 468 real runs it changes nearly nothing (utility at r = .7 from 35 to 37 thousandths);
votes as evidence, the default (`evidence.CalibratedConfidence`), double it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memory.cases.case import Case

PER_SUCCESS: Final = 0.02
CASES: Final = 5
"""Most similar cases that are looked at."""
MAX_AGE_MS: Final = 7 * 24 * 3_600_000


def boosted(confidence: float, tool: str, similar: Iterable[Case], now_ms: int) -> float:
    """Return a confidence plus .02 for each successful case of the last 7 days with the tool.

    `similar`: the most similar cases first, of which 5 count; `now_ms`: Unix ms, never read from a
    clock here. A case without a time is too old. At most 1.
    """
    return min(1.0, confidence + PER_SUCCESS * len(successes(tool, recent(similar, now_ms))))


def recent(similar: Iterable[Case], now_ms: int) -> list[Case]:
    """Return the first 5 cases of the last 7 days."""
    found = [case for case in similar if case.at is not None and now_ms - case.at <= MAX_AGE_MS]
    return found[:CASES]


def successes(tool: str, cases: Iterable[Case]) -> list[Case]:
    """Return the successful cases in which the tool was called."""
    return [
        case
        for case in cases
        if case.reward is not None and case.reward >= 1.0 and tool in case.tools
    ]
