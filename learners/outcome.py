"""What a learner learns from: one judged prediction."""

from __future__ import annotations

import msgspec


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """One prediction whose truth is known, speculated on or not (full feedback).

    `confidence` in [0, 1]; `gain` (latency that a hit saves) and `cost` (what a miss wastes) in
    milliseconds; `timestamp` of the completion in Unix milliseconds.
    """

    confidence: float
    correct: bool
    speculated: bool = False
    gain: float = 0.0
    cost: float = 0.0
    execution_ms: float = 0.0
    mode: str = "speculative"
    timestamp: int = 0
