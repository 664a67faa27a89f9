"""Corrects a probability by what probabilities like it have turned out to be worth.

24 points on the scale of log-odds, between which is interpolated; the result is averaged with the
probability itself ("adaptive probability map" of PAQ, Mahoney 2005).
"""

from __future__ import annotations

from typing import Final

from headstart.prediction.fixed_math import EXP, LN, LOWEST, ONE, STEPS

_POINTS: Final = 24
_PER_UNIT, _MIDDLE = 2.3, 5.0
_RATE: Final = 0.03
_LEAST: Final = 1e-4


class ConfidenceCorrection:
    """Learns how often guesses of about the same probability are right."""

    def __init__(self) -> None:
        self.points = [_sigmoid(i / _PER_UNIT - _MIDDLE) for i in range(_POINTS)]

    def corrected(self, probability: float) -> float:
        """Return the confidence for a probability."""
        i, part = _position(probability)
        points = self.points
        return 0.5 * probability + 0.5 * (points[i] * (1.0 - part) + points[i + 1] * part)

    def learn(self, probability: float, right: bool) -> None:
        """Learn whether a guess was right."""
        i, part = _position(probability)
        points = self.points
        points[i] += _RATE * (1.0 - part) * (right - points[i])
        points[i + 1] += _RATE * part * (right - points[i + 1])


def _position(probability: float) -> tuple[int, float]:
    odds = LN[int((probability + _LEAST) * ONE)] - LN[int((1.0 + _LEAST - probability) * ONE)]
    x = max(0.0, min(_POINTS - 1.001, (odds + _MIDDLE) * _PER_UNIT))
    return int(x), x - int(x)


def _sigmoid(x: float) -> float:
    power = EXP[int(abs(x) * STEPS)] if abs(x) < LOWEST else EXP[-1]
    return 1.0 / (1.0 + power) if x >= 0 else power / (1.0 + power)
