"""TD(0): a value of speculating is learned outcome by outcome and steers the threshold."""

from __future__ import annotations

from dataclasses import dataclass

from learners.outcome import Outcome
from learners.policy import START, TARGET, State, Thresholds, clamp, with_suggest


@dataclass(frozen=True)
class Td:
    """V(s) <- V(s) + alpha (r - V(s)): source 000 §9.1, Sutton & Barto ch. 6, read by design §5.

    Learns from outcomes at or above the threshold, r = 1 for a hit, 0 for a miss; then
    threshold += rate (target - V). Bounds as for EMA. State: (threshold, V).
    """

    alpha: float = 0.1
    rate: float = 0.05
    start: float = START
    initial_value: float = 0.85
    target: float = TARGET
    min: float = 0.40
    max: float = 0.95
    name: str = "td"
    version: int = 1

    def initial(self) -> State:
        """Return (start, initial_value)."""
        return (self.start, self.initial_value)

    def update(self, state: State, outcome: Outcome) -> State:
        """Return the state after `outcome`; unchanged where its confidence is below."""
        threshold, value = state
        if outcome.confidence < threshold:
            return state
        value += self.alpha * ((1.0 if outcome.correct else 0.0) - value)
        return (clamp(threshold + self.rate * (self.target - value), self.min, self.max), value)

    def thresholds(self, state: State) -> Thresholds:
        """Return the learned `speculate` and the `suggest` that follows it."""
        return with_suggest(state[0])
