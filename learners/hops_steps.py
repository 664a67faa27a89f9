"""What HOPS does with one level's evidence besides taking in an outcome: to forget and to doubt.

Its constants are here, too. Not here: the steps per outcome (`hops` for one, `hops_run` for many).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Final

from headstart.calibration import LOGIT_MAX, logit, wanted
from learners.policy import clamp

PRIORS: Final = ((24.0, 6.0), (240.0, 18.0), (240.0, 48.0), (240.0, 32.0))
"""Prior precision of (slope, intercept) deviations by depth; deeper levels take the last."""
COLD_PRIOR: Final = 0.5
"""Prior precision of what a context not yet known adds to the intercept."""
FAR_BELOW: Final = 0.7
FAR_ABOVE: Final = 3.0
"""How far on the other side of even odds than the break-even point an outcome counts at most, as a
product of logits: else a miss at .02 would make the line steeper, and so .9 more credible."""
NOISE: Final = 4.0
"""1 over the largest weight that one outcome can have, q (1 - q) <= 1/4 (Böhning 1992)."""
_KEPT: Final = 0.1
"""Share of what was known of the intercept that an alarm leaves."""
EVERY: Final = 8.0
"""Outcomes between two times of forgetting, all of them at once: one matrix inversion for eight."""
SLOPE_MIN: Final = 0.05
SURE: Final = 12.0


def heard(confidence: float, gain: float, cost: float) -> float:
    """Return the logit of a confidence as it counts for HOPS."""
    x, even = logit(confidence), wanted(gain, cost)
    far = FAR_BELOW if x < 0.0 else FAR_ABOVE
    return -far / clamp(even, -LOGIT_MAX, LOGIT_MAX) if x * even < -far else x


@dataclass(frozen=True)
class Steps:
    """The parameters of HOPS (`Hops`), and what follows from them."""

    keep: float = 0.9995
    slack: float = 0.055
    alarm: float = 13.0
    stakes: float = 0.05
    slope_kept: float = 1.0

    @cached_property
    def _fading(self) -> tuple[tuple[float, float, float], ...]:
        """By depth: what is kept of the evidence, and what the prior adds to L of a and of b."""
        keep = self.keep**EVERY
        return tuple((keep, (1.0 - keep) * a, (1.0 - keep) * b) for a, b in PRIORS)

    def forgotten(
        self, depth: float, da: float, db: float, p1: float, p2: float, p3: float
    ) -> tuple[float, float, float, float, float]:
        """Return d and P with `EVERY` outcomes' worth of evidence faded towards the prior."""
        keep, fresh_a, fresh_b = self._fading[int(depth) if depth < 4.0 else 3]
        scale = keep / (p1 * p3 - p2 * p2)
        l1, l2, l3 = p3 * scale, -p2 * scale, p1 * scale
        e1, e2 = l1 * da + l2 * db, l2 * da + l3 * db
        l1 += fresh_a
        l3 += fresh_b
        scale = 1.0 / (l1 * l3 - l2 * l2)
        p1, p2, p3 = l3 * scale, -l2 * scale, l1 * scale
        return p1 * e1 + p2 * e2, p2 * e1 + p3 * e2, p1, p2, p3

    def doubted(self, depth: float, p1: float, p2: float, p3: float) -> tuple[float, float, float]:
        """Return P after an alarm: of the intercept hardly more is known than at first."""
        prior = PRIORS[int(depth) if depth < 4.0 else 3]
        if self.slope_kept < 1.0:
            p1, p2 = p1 / self.slope_kept, p2 / sqrt(self.slope_kept)
            gained = (1.0 - self.slope_kept) * prior[0]
            shrink = gained / (1.0 + gained * p1)
            p1, p2, p3 = p1 - shrink * p1 * p1, p2 - shrink * p1 * p2, p3 - shrink * p2 * p2
        p2, p3 = p2 / sqrt(_KEPT), p3 / _KEPT
        gained = (1.0 - _KEPT) * prior[1]
        shrink = gained / (1.0 + gained * p3)
        return p1 - shrink * p2 * p2, p2 - shrink * p2 * p3, p3 - shrink * p3 * p3

    def colder(self, cold: float, variance: float, h: float, error: float) -> tuple[float, float]:
        """Return `cold` and its variance after an outcome in a context known as little as `h`."""
        kept = self.keep / variance
        precision = kept + (1.0 - self.keep) * COLD_PRIOR
        faded = kept * cold / precision
        precision += h * h / NOISE
        return faded + h * error / precision, 1.0 / precision
