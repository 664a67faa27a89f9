"""Repetitions of a measurement: the median of each figure, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Any

Round = Mapping[str, float | None]
"""The figures of one repetition; None: not measured, an anchor that is not here."""


def repeated(measure: Callable[[int], Round], rounds: int) -> dict[str, Any]:
    """Return the medians over `rounds`; `measure` is called with the round's number, from 0."""
    return medians([measure(number) for number in range(rounds)])


def medians(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return each figure's median, and under `spread` its least and its most.

    Of an even number of rounds the lower one in the middle, so that it is one that was measured.
    A ratio is to be a figure of its round: what a machine does else holds for both sides then.
    """
    found: dict[str, Any] = {}
    spread: dict[str, list[float]] = {}
    for name in rounds[0]:
        values = [value for each in rounds if (value := each[name]) is not None]
        found[name] = median_low(values) if values else None
        if values:
            spread[name] = [min(values), max(values)]
    return {**found, "spread": spread, "repetitions": len(rounds)}


def ratio(ours: float, anchor: float | None) -> float | None:
    """Return how many times the anchor's figure ours is; None without an anchor."""
    return round(ours / anchor, 2) if anchor else None
