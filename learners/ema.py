"""EMA: an exponential moving average of the success rate steers the threshold."""

from __future__ import annotations

from dataclasses import dataclass

from learners.outcome import Outcome
from learners.policy import START, TARGET, State, Thresholds, clamp, with_suggest


@dataclass(frozen=True)
class Ema:
    """The rule of source 000 (§3.1, option B), as design §5 reads it.

    Learns from outcomes at or above the threshold. Every `window` of them, with m their share of
    hits: e <- (1 - alpha) e + alpha m; err = e - target. Below `low` the threshold rises by
    min(max_step, gain |err|), above `high` it falls by the same, else beyond `dead_band` it moves
    by -fine err. State: (threshold, e, seen in window, hits in window).
    """

    alpha: float = 0.2
    start: float = START
    initial_rate: float = 0.85
    target: float = TARGET
    low: float = 0.80
    high: float = 0.90
    gain: float = 0.3
    max_step: float = 0.05
    fine: float = 0.1
    dead_band: float = 0.03
    window: int = 50
    min: float = 0.70
    max: float = 0.95
    name: str = "ema"
    version: int = 1

    def initial(self) -> State:
        """Return (start, initial_rate, 0, 0)."""
        return (self.start, self.initial_rate, 0.0, 0.0)

    def update(self, state: State, outcome: Outcome) -> State:
        """Return the state after `outcome`; unchanged where its confidence is below."""
        threshold, rate, seen, hits = state
        if outcome.confidence < threshold:
            return state
        seen += 1.0
        if outcome.correct:
            hits += 1.0
        if seen < self.window:
            return (threshold, rate, seen, hits)
        rate = (1.0 - self.alpha) * rate + self.alpha * (hits / seen)
        return (self._step(threshold, rate), rate, 0.0, 0.0)

    def _step(self, threshold: float, rate: float) -> float:
        error = rate - self.target
        step = min(self.max_step, self.gain * abs(error))
        if rate < self.low:
            threshold += step
        elif rate > self.high:
            threshold -= step
        elif abs(error) > self.dead_band:
            threshold -= self.fine * error
        return clamp(threshold, self.min, self.max)

    def thresholds(self, state: State) -> Thresholds:
        """Return the learned `speculate` and the `suggest` that follows it."""
        return with_suggest(state[0])
