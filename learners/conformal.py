"""Conformal rules: each outcome's error moves the threshold."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, tan

from learners.bounds import COUNT, SUM, THRESHOLD
from learners.policy import State, clamp
from learners.threshold_rule import ThresholdRule


@dataclass(frozen=True)
class Aci(ThresholdRule):
    """Adaptive conformal inference (Gibbs & Candès 2021, eq. 2) on the threshold.

    At each outcome at or above the threshold: threshold += gamma (miss - (1 - target)). The
    long-run share of hits is the target, without assumptions on the data. State per threshold:
    (threshold).
    """

    gamma: float = 0.02

    name = "aci"
    version = 1

    def fresh(self, threshold: float, target: float) -> State:  # noqa: ARG002
        """Return (threshold,)."""
        return (threshold,)

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        """Return the next (threshold,)."""
        moved = own[0] + self.gamma * (target - 1.0 if correct else target)
        return (clamp(moved, low, self.max),)


@dataclass(frozen=True)
class ConformalPid(ThresholdRule):
    """Conformal PID control (Angelopoulos, Candès & Tibshirani 2023), without a scorecaster.

    P, quantile tracking: base += gamma (miss - (1 - target)). I, error integration with a
    saturating tangent (their eq. 5): threshold = base + ki tan(E log(t + 1) / (saturation
    (t + 1))), E the sum of (miss - (1 - target)), t the number of outcomes at or above the
    threshold. State per threshold: (threshold, base, E, t).
    """

    gamma: float = 0.02
    ki: float = 0.05
    saturation: float = 5.0

    name = "conformal_pid"
    version = 1
    kept = (THRESHOLD, THRESHOLD, SUM, COUNT)

    def fresh(self, threshold: float, target: float) -> State:  # noqa: ARG002
        """Return (threshold, threshold, 0, 0)."""
        return (threshold, threshold, 0.0, 0.0)

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        """Return the next (threshold, base, E, t)."""
        _, base, total, count = own
        error = target - 1.0 if correct else target
        count += 1.0
        total += error
        base = clamp(base + self.gamma * error, low, self.max)
        angle = clamp(total * log(count + 1.0) / (self.saturation * (count + 1.0)), -1.5, 1.5)
        return (clamp(base + self.ki * tan(angle), low, self.max), base, total, count)
