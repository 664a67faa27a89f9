"""Rules that evaluate a window of outcomes periodically: gradient and PID."""

from __future__ import annotations

from dataclasses import dataclass

from learners.bit_window import push_bit, share_of_ones
from learners.bounds import BITS, COUNT, SUM, THRESHOLD, Bound
from learners.policy import State, clamp
from learners.threshold_rule import ThresholdRule


@dataclass(frozen=True)
class Gradient(ThresholdRule):
    """Simple gradient of source 000 (§3.1, option A).

    Every `every` outcomes at or above the threshold, from `least` on: +`move` if the share of hits
    among the last `window` is below target - `band`, -`move` above target + `band`. State per
    threshold: (threshold, outcomes, window as bits).
    """

    move: float = 0.02
    band: float = 0.05
    window: int = 50
    every: int = 10
    least: int = 20

    name = "gradient"
    version = 1
    kept = (THRESHOLD, COUNT, BITS)

    def fresh(self, threshold: float, target: float) -> State:  # noqa: ARG002
        """Return (threshold, 0, empty)."""
        return (threshold, 0.0, 0.0)

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        """Return the next (threshold, outcomes, window)."""
        threshold, count, bits = own
        count, bits = count + 1.0, push_bit(bits, correct, self.window)
        if count >= self.least and count % self.every == 0.0:
            rate = share_of_ones(bits, count, self.window)
            if rate > target + self.band:
                threshold = clamp(threshold - self.move, low, self.max)
            elif rate < target - self.band:
                threshold = clamp(threshold + self.move, low, self.max)
        return (threshold, count, bits)


@dataclass(frozen=True)
class Pid(ThresholdRule):
    """PID controller of source 000 (§3.1, option C).

    Every `every` outcomes at or above the threshold, err = target - share of hits among the last
    `window`: threshold += kp err + ki sum(err) + kd change(err). The sum is clamped to +-`windup`,
    a limit that the source does not give. State per threshold: (threshold, outcomes, window as
    bits, sum, last err).
    """

    kp: float = 0.1
    ki: float = 0.02
    kd: float = 0.05
    window: int = 50
    every: int = 10
    windup: float = 5.0

    name = "pid"
    version = 1
    kept = (THRESHOLD, COUNT, BITS, SUM, Bound("last error", -1.0, 1.0))

    def fresh(self, threshold: float, target: float) -> State:  # noqa: ARG002
        """Return (threshold, 0, empty, 0, 0)."""
        return (threshold, 0.0, 0.0, 0.0, 0.0)

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        """Return the next (threshold, outcomes, window, sum, last err)."""
        threshold, count, bits, total, last = own
        count, bits = count + 1.0, push_bit(bits, correct, self.window)
        if count % self.every == 0.0:
            error = target - share_of_ones(bits, count, self.window)
            total = clamp(total + error, -self.windup, self.windup)
            threshold += self.kp * error + self.ki * total + self.kd * (error - last)
            threshold, last = clamp(threshold, low, self.max), error
        return (threshold, count, bits, total, last)
