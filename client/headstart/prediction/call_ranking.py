"""Ranks whole calls: P(tool) P(arguments) is mixed with what followed the same calls before.

In the log domain, as in `tool_model`, with "none of these" as one of the outcomes. The features are
numbers of the record, rounded as the executor used them; the weights are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headstart.prediction.call_memory import CallMemory
from headstart.prediction.confidence_correction import ConfidenceCorrection
from headstart.prediction.decision_record import LearnedRanking
from headstart.prediction.fixed_math import LN, ONE, softmax

TRIES: Final = (3, 10, 40)
"""Bounds of the buckets of `Candidate.tries`."""
_MEMORY_BUCKETS: Final = 5
_RATE, _WEIGHT_RATE, _LEAST = 0.03, 0.3, 0.0005
_HIGHEST: Final = 1.6
_REPEATED: Final = -0.7
_PRIOR: Final = 0.3
_MOST_TOOLS: Final = 400


class Ranked:
    """Probabilities of the candidates, and last of none of them; the terms they were mixed from."""

    __slots__ = ("shares", "terms")

    def __init__(self, shares: list[float], terms: list[tuple[int, list[float]]]) -> None:
        self.shares = shares
        self.terms = terms


class CallRanking:
    """Learns how to weigh the features of whole calls."""

    def __init__(self) -> None:
        self.weights = [1.0] + [_PRIOR] * (2 * _MEMORY_BUCKETS)
        self.tries_weights = [0.0] * (len(TRIES) + 1)
        self.repeated_weight = _REPEATED
        self.tool_weights: dict[str, list[float]] = {}  # in general, if repeated
        self.correction = ConfidenceCorrection()

    def ranked(
        self, ranking: LearnedRanking, memory: CallMemory, contexts: Sequence[int]
    ) -> Ranked:
        """Return the probability of each candidate, and last of none of them."""
        base = [LN[each.probability] for each in ranking.candidates]
        base.append(LN[ranking.rest])
        weight = self.weights[0]
        scores = [weight * x for x in base]
        terms = [(0, base)]
        for order, context in enumerate(contexts):
            known = memory.followers(context)
            if known is not None:
                index, logs = _from_memory(order, known, ranking)
                weight = self.weights[index]
                scores = [x + weight * (y - z) for x, y, z in zip(scores, logs, base, strict=True)]
                terms.append((index, [y - z for y, z in zip(logs, base, strict=True)]))
        none = (0.0, 0.0)
        for i, each in enumerate(ranking.candidates):
            by_tool = self.tool_weights.get(each.tool, none)
            scores[i] += by_tool[0] + self.tries_weights[each.tries]
            if each.repeated:
                scores[i] += self.repeated_weight + by_tool[1]
        return Ranked(softmax(scores), terms)

    def _has_room(self, tool: str) -> bool:
        return tool in self.tool_weights or len(self.tool_weights) < _MOST_TOOLS

    def learn(self, ranking: LearnedRanking, ranked: Ranked) -> None:
        """Learn which candidates were made; `ranked` is what `ranked()` returns now."""
        shares, candidates = ranked.shares, ranking.candidates
        right = max(ranking.made, key=lambda i: (shares[i], -i), default=len(candidates))
        for index, term in ranked.terms:
            expected = 0.0
            for share, x in zip(shares, term, strict=True):
                expected += share * x
            moved = self.weights[index] + _RATE * _WEIGHT_RATE * (term[right] - expected)
            self.weights[index] = max(0.0, min(_HIGHEST, moved))
        for i, each in enumerate(candidates):
            step = _RATE * ((i == right) - shares[i])
            if not -_LEAST < step < _LEAST and self._has_room(each.tool):
                by_tool = self.tool_weights.setdefault(each.tool, [0.0, 0.0])
                by_tool[0] += step
                self.tries_weights[each.tries] += step
                if each.repeated:
                    self.repeated_weight += step
                    by_tool[1] += step
        if candidates:
            top = max(range(len(candidates)), key=lambda i: (shares[i], -i))
            self.correction.learn(shares[top], top in ranking.made)


def _from_memory(
    order: int, known: dict[int, int], ranking: LearnedRanking
) -> tuple[int, list[float]]:
    total = sum(known.values())
    counts = [known.get(each.call, 0) for each in ranking.candidates]
    counts.append(total - sum(counts))
    shares = [each.probability for each in ranking.candidates]
    shares.append(ranking.rest)
    parts = total + _PRIOR
    logs = [
        LN[int((n * ONE + _PRIOR * share) / parts)] for n, share in zip(counts, shares, strict=True)
    ]
    seen = 0 if total < 2 else 1 if total < 3 else 2 if total < 5 else 3 if total < 12 else 4
    return 1 + order * _MEMORY_BUCKETS + seen, logs
