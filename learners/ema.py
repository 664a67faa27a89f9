"""EMA: controls the threshold by an exponential moving average of the success rate."""

from __future__ import annotations

from dataclasses import dataclass

from learners.bounds import COUNT, SHARE, THRESHOLD
from learners.policy import State, clamp
from learners.threshold_rule import ThresholdRule


@dataclass(frozen=True)
class Ema(ThresholdRule):
    """The rule of source 000 (§3.1, option B).

    Learns from outcomes at or above the threshold. Every `window` of them, with m their share of
    hits: e <- (1 - alpha) e + alpha m; err = e - target. Below target - `band` the threshold rises
    by min(max_step, gain |err|), above target + `band` it falls by the same, else beyond
    `dead_band` it moves by -fine err. The average starts at the target. State per threshold:
    (threshold, e, outcomes in window, hits in window).
    """

    alpha: float = 0.2
    band: float = 0.05
    gain: float = 0.3
    max_step: float = 0.05
    fine: float = 0.1
    dead_band: float = 0.03
    window: int = 50
    min: float = 0.70

    name = "ema"
    version = 2
    kept = (THRESHOLD, SHARE, COUNT, COUNT)

    def fresh(self, threshold: float, target: float) -> State:
        """Return (threshold, target, 0, 0)."""
        return (threshold, target, 0.0, 0.0)

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        """Return the next (threshold, e, seen, hits)."""
        threshold, rate, seen, hits = own
        seen += 1.0
        if correct:
            hits += 1.0
        if seen < self.window:
            return (threshold, rate, seen, hits)
        rate = (1.0 - self.alpha) * rate + self.alpha * (hits / seen)
        return (_moved(self, threshold, rate, target, low), rate, 0.0, 0.0)

    def migrated(self, version: int, state: State) -> State | None:
        """Also migrate version 1, which had no `suggest`."""
        if version == 1 and len(state) == 4:
            state = state + self.fresh(min(self.suggest_start, state[0]), self.suggest_target)
            version = 2
        return super().migrated(version, state)


def _moved(rule: Ema, threshold: float, rate: float, target: float, low: float) -> float:
    error = rate - target
    step = min(rule.max_step, rule.gain * abs(error))
    if rate < target - rule.band:
        threshold += step
    elif rate > target + rule.band:
        threshold -= step
    elif abs(error) > rule.dead_band:
        threshold -= rule.fine * error
    return clamp(threshold, low, rule.max)
