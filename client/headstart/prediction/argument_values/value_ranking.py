"""Chooses among the values that are on offer for a leaf: a conditional logit.

Each value v has a score z(v) = max over its templates and counts of logit(share of hits)
+ sum of the weights of its templates + the weights of its flags;
P(v) = exp(z(v)) / (1 + sum of exp(z)), the 1 for "none of these" (McFadden, "Conditional Logit
Analysis of Qualitative Choice Behavior", 1974). Weights move by the gradient of ln P(right value).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from headstart.prediction.argument_values.argument_templates import Found
from headstart.prediction.argument_values.leaf_model import FLAGS, PLACES, LeafModel
from headstart.prediction.fixed_math import EXP, LOGIT, LOWEST, PARTS, STEPS

BY_USER, BY_AGENT, USED_HERE, USED = 1, 2, 4, 8
"""Flags of a value: in the user's or the agent's last text; an argument before."""
_RATE, _LEAF_FLAGS, _SHARED_FLAGS = 0.12, 0.5, 0.3
_LEAST: Final = 0.002
_LOOK_EVERY: Final = 8  # calls
_FLAGS_SET: Final = tuple(tuple(b for b in range(FLAGS) if f >> b & 1) for f in range(1 << FLAGS))


class ScoredValue:
    """One value on offer: the indexes of the templates that give it, and how probable it is."""

    __slots__ = ("constant", "flags", "found", "probability", "score", "templates", "tries")

    def __init__(
        self, templates: list[int], constant: int, flags: int, found: Found | None = None
    ) -> None:
        self.found = found  # value and key, which a record does not have
        self.templates = templates
        self.constant = constant
        self.flags = flags
        self.score = self.probability = self.tries = 0.0


def rank(
    leaf: LeafModel, values: Sequence[ScoredValue], after: int, shared_flags: array[float]
) -> None:
    """Set score, probability and tries of each value."""
    numbers, counts, by_leaf = leaf.numbers, leaf.after, leaf.flag_weights
    first = 2 * (after % PLACES)
    highest = 0.0
    for value in values:
        best = score = tries = 0.0
        for index in value.templates:
            i = 3 * index
            tried = numbers[i + 1]
            ratio = (numbers[i] + 0.3) / (tried + 1.0)
            score += numbers[i + 2]
            i = first + 2 * PLACES * index
            here = counts[i + 1]
            if here:
                ratio = (counts[i] + 2.0 * ratio) / (here + 2.0)
            if ratio > best:
                best, tries = ratio, tried
        if value.constant:
            ratio = 0.5 * leaf.constants.get(value.constant, 0) / (leaf.count + 1.0)
            if ratio > best:
                best = ratio
                tries = tries or leaf.count
        score += LOGIT[int(best * PARTS)]
        if value.flags:
            for flag in _FLAGS_SET[value.flags]:
                score += by_leaf[flag] + shared_flags[flag]
        value.score, value.tries = score, tries
        if score > highest:
            highest = score
    _set_probabilities(values, highest)


def _set_probabilities(values: Sequence[ScoredValue], highest: float) -> None:
    total = EXP[int(highest * STEPS)] if highest < LOWEST else EXP[-1]
    for value in values:
        below = highest - value.score
        power = EXP[int(below * STEPS)] if below < LOWEST else EXP[-1]
        value.probability = power
        total += power
    for value in values:
        value.probability /= total


def learn(
    leaf: LeafModel,
    values: Sequence[ScoredValue],
    right: int,
    after: int,
    shared_flags: array[float],
) -> None:
    """Learn which of the ranked values was right; -1 is none."""
    numbers = leaf.numbers
    for i, value in enumerate(values):
        step = _RATE * ((i == right) - value.probability)
        if not -_LEAST < step < _LEAST:
            for index in value.templates:
                numbers[3 * index + 2] += step
            for flag in _FLAGS_SET[value.flags]:
                leaf.flag_weights[flag] += step * _LEAF_FLAGS
                shared_flags[flag] += step * _SHARED_FLAGS
    place = after % PLACES
    for i, value in enumerate(values):
        for index in value.templates:
            leaf.count_use(index, place, i == right)
    if leaf.count % _LOOK_EVERY == 0:
        leaf.forget_hopeless()
