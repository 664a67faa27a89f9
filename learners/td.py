"""TD(0): learns the value of speculating and controls the threshold by it."""

from __future__ import annotations

from dataclasses import dataclass

from learners.bounds import SHARE, THRESHOLD
from learners.policy import State
from learners.threshold_rule import ThresholdRule


@dataclass(frozen=True)
class Td(ThresholdRule):
    """V(s) <- V(s) + alpha (r - V(s)): source 000 §9.1, Sutton & Barto ch. 6.

    Learns from outcomes at or above the threshold, r = 1 for a hit, 0 for a miss; then
    threshold += rate (target - V). V starts at the target. State per threshold: (threshold, V).
    """

    alpha: float = 0.1
    rate: float = 0.05

    name = "td"
    version = 2
    kept = (THRESHOLD, SHARE)

    def fresh(self, threshold: float, target: float) -> State:
        """Return (threshold, target)."""
        return (threshold, target)

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        """Return the next (threshold, V)."""
        threshold, value = own
        value += self.alpha * ((1.0 if correct else 0.0) - value)
        threshold += self.rate * (target - value)
        if threshold < low:
            threshold = low
        elif threshold > self.max:
            threshold = self.max
        return (threshold, value)

    def migrated(self, version: int, state: State) -> State | None:
        """Also migrate version 1, which had no `suggest`."""
        if version == 1 and len(state) == 2:
            state = state + self.fresh(min(self.suggest_start, state[0]), self.suggest_target)
            version = 2
        return super().migrated(version, state)
