"""Which tool is called next: models of several contexts, mixed in the log domain.

Each context counts what followed it. A context that has seen little leans on a shorter one:
p_i(s) = (n_i(s) + q(s)) / (N_i + 1), with q from the order below. The mixture is
P(s) ~ exp(sum_i w_i ln p_i(s) + words), its weights chosen by how much each context has seen, as in
Mahoney, "Adaptive Weighing of Context Models for Lossless Data Compression" (2005). What was never
seen in any context has a share that is learned by depth (escape probability).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headstart.prediction.fixed_math import LN, ONE, softmax
from headstart.prediction.next_tool.context_counts import (
    ONE_COUNT,
    SYMBOL_BITS,
    SYMBOL_MASK,
    ContextCounts,
    Counts,
    unpacked,
)
from headstart.prediction.next_tool.name_words import SHARES, NameWords
from headstart.prediction.next_tool.word_weights import WordWeights

REPLY: Final = ""
"""The symbol of an answer without calls."""
ORDERS: Final = 5
"""The first contexts are the last 0 to 4 events, each longer than the one before."""
_MOST_CONTEXTS, _MOST_WORDS = 4_400, 3_200
_MOST_TOOLS: Final = 400
_LONGEST_NAME: Final = 200
_CANDIDATES, _FEW = 10, 5
_RATE, _NAMED_RATE = 0.004, 0.1
_FIRST_WEIGHT, _LOWEST_WEIGHT, _HIGHEST_WEIGHT, _HIGHEST_NAMED = 0.08, -0.5, 1.5, 6.0
_BUCKETS: Final = 10
_CONTEXTS: Final = 11
_RELEVANT: Final = 0.03  # words learn about symbols that were at least so probable
_UNITS: Final = tuple(ONE_COUNT * x for x in (1.5, 3.5, 10, 40))


class ToolFeatures(NamedTuple):
    """What the next tool is predicted from, by hashes."""

    contexts: tuple[int, ...]
    words: tuple[int, ...]
    named: tuple[tuple[str, int, int], ...]


class MixedShares:
    """Probabilities of the next symbols, and what they were mixed from."""

    __slots__ = ("depth", "named", "shares", "symbols", "terms")

    def __init__(self, symbols: list[int]) -> None:
        self.symbols = symbols
        self.shares: list[float] = []
        self.terms: list[tuple[int, list[float]]] = []  # index of a weight, a number per symbol
        self.named: tuple[list[float], list[float]] | None = None
        self.depth = 0


class ToolModel:
    """Learns what an agent does next: the name of a tool, or a reply."""

    def __init__(self) -> None:
        self.symbols: list[str] = []
        self.index: dict[str, int] = {}
        self.name_words = NameWords()
        self.contexts = ContextCounts(_MOST_CONTEXTS)
        self.words = WordWeights(_MOST_WORDS)
        self.weights = [_FIRST_WEIGHT] * (_CONTEXTS * _BUCKETS)
        self.named_weights = [0.0, 0.0]
        self.escapes = [[0.0, 0.0] for _ in range(ORDERS + 1)]  # times seen, times escaped

    def mixture(self, features: ToolFeatures) -> MixedShares | None:
        """Return probabilities of the next symbols; None before anything was learned."""
        counts = self.contexts.find(features.contexts)
        if counts[0] is None:
            return None
        mixture = MixedShares(_candidates(counts))
        scores = self._mix(mixture, counts)
        place = {symbol: i for i, symbol in enumerate(mixture.symbols)}
        if features.words:
            self.words.add_to(scores, features.words, place)
        if features.named:
            self._add_named(mixture, scores, features.named, place)
        seen, escaped = self.escapes[mixture.depth]
        mixture.shares = softmax(scores, 1.0 - (escaped + 0.5) / (seen + 1.0))
        return mixture

    def _mix(self, mixture: MixedShares, counts: Sequence[Counts | None]) -> list[float]:
        symbols, weights, terms = mixture.symbols, self.weights, mixture.terms
        place = {symbol: i for i, symbol in enumerate(symbols)}
        below = second = _order_0(counts[0], symbols)  # type: ignore[arg-type]
        scores = [0.0] * len(symbols)
        for i, seen in enumerate(counts):
            if i == 0 or seen is None:
                continue
            shares, bucket = _shares(seen, below if i < ORDERS else second, place)
            if i < ORDERS:
                below = shares
                if bucket > 1:
                    mixture.depth = i
                if i < 3:
                    second = shares
            index = i * _BUCKETS + bucket
            logs = [LN[int(x * ONE)] for x in shares]
            weight = weights[index]
            scores = [x + weight * y for x, y in zip(scores, logs, strict=True)]
            terms.append((index, logs))
        if not terms:
            logs = [LN[int(x * ONE)] for x in below]
            terms.append((0, logs))
            scores = list(logs)
        return scores

    def _add_named(
        self,
        mixture: MixedShares,
        scores: list[float],
        named: Sequence[tuple[str, int, int]],
        place: dict[int, int],
    ) -> None:
        by_agent, by_user = [0.0] * len(scores), [0.0] * len(scores)
        for tool, agent, user in named:
            i = place.get(self.index.get(tool, -1))
            if i is not None:
                by_agent[i], by_user[i] = agent / SHARES, user / SHARES
                scores[i] += self.named_weights[0] * by_agent[i]
                scores[i] += self.named_weights[1] * by_user[i]
        mixture.named = by_agent, by_user

    def learn(self, features: ToolFeatures, name: str, mixture: MixedShares | None) -> None:
        """Learn what came next; `mixture` is what `mixture(features)` returns now."""
        symbol = self.add_symbol(name)
        if symbol is None:
            return
        if mixture is not None:
            self._learn_mixture(features, symbol, mixture)
        self.contexts.update(features.contexts, symbol)

    def _learn_mixture(self, features: ToolFeatures, symbol: int, mixture: MixedShares) -> None:
        escape = self.escapes[mixture.depth]
        escape[0] += 1.0
        if symbol not in mixture.symbols:
            escape[1] += 1.0
        if escape[0] > 200.0:
            escape[0] *= 0.5
            escape[1] *= 0.5
        if symbol not in mixture.symbols:
            return
        gradient = [-share for share in mixture.shares]
        gradient[mixture.symbols.index(symbol)] += 1.0
        weights = self.weights
        for index, logs in mixture.terms:
            moved = weights[index] + _RATE * _product(gradient, logs)
            weights[index] = max(_LOWEST_WEIGHT, min(_HIGHEST_WEIGHT, moved))
        for i, shares in enumerate(mixture.named or ()):
            moved = self.named_weights[i] + _NAMED_RATE * _product(gradient, shares)
            self.named_weights[i] = max(_LOWEST_WEIGHT, min(_HIGHEST_NAMED, moved))
        relevant = [
            (s, g) for s, g in zip(mixture.symbols, gradient, strict=True)
            if s == symbol or g < -_RELEVANT
        ]  # fmt: skip
        if features.words:
            self.words.learn(features.words, relevant)

    def add_symbol(self, name: str) -> int | None:
        """Return the number of a symbol, None for a long name, or one too many."""
        symbol = self.index.get(name)
        if symbol is None and len(self.symbols) < _MOST_TOOLS and len(name) <= _LONGEST_NAME:
            symbol = self.index[name] = len(self.symbols)
            self.symbols.append(name)
            self.name_words.add(name)
        return symbol


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    total = 0.0
    for x, y in zip(one, other, strict=True):
        total += x * y
    return total


def _candidates(counts: Sequence[Counts | None]) -> list[int]:
    found: dict[int, None] = {}
    for seen in counts[1:]:
        if seen is None:
            continue
        if type(seen) is int:
            found[seen & SYMBOL_MASK] = None
        else:
            for symbol in unpacked(seen)[1::2]:  # type: ignore[arg-type]
                found[symbol] = None
    if _FEW <= len(found) <= _CANDIDATES:
        return list(found)
    often = _pairs(counts[0])
    if len(found) < _FEW:
        by_count = sorted(often, key=often.get, reverse=True)  # type: ignore[arg-type]
        return list(dict.fromkeys([*found, *by_count[:_FEW]]))
    first = _pairs(counts[1])
    second = _pairs(counts[2]) if counts[2] is not None else first
    return sorted(found, key=lambda s: (-second.get(s, 0), -first.get(s, 0), -often.get(s, 0), s))[
        :_CANDIDATES
    ]


def _pairs(counts: Counts | None) -> dict[int, int]:
    if counts is None:
        return {}
    if isinstance(counts, int):
        return {counts & SYMBOL_MASK: (counts >> SYMBOL_BITS) * ONE_COUNT}
    flat = unpacked(counts)
    return dict(zip(flat[1::2], flat[2::2], strict=True))


def _order_0(counts: Counts, symbols: Sequence[int]) -> list[float]:
    often = _pairs(counts)
    unseen = ONE_COUNT / (len(often) + 1)
    total = (counts >> SYMBOL_BITS) * ONE_COUNT if isinstance(counts, int) else unpacked(counts)[0]
    return [(often.get(symbol, 0) + unseen) / (total + ONE_COUNT) for symbol in symbols]


def _shares(
    counts: Counts, below: Sequence[float], place: dict[int, int]
) -> tuple[list[float], int]:
    """Return the probabilities in one context, and the bucket of its weight."""
    if type(counts) is int:
        total = counts >> SYMBOL_BITS
        factor = 1 / (total + 1)
        shares = [x * factor for x in below]
        i = place.get(counts & SYMBOL_MASK)
        if i is not None:
            shares[i] += total * factor
        seen = 0 if total < 2 else 2 if total < 4 else 4 if total < 10 else 6 if total < 40 else 8
        return shares, seen + 1
    flat = unpacked(counts)  # type: ignore[arg-type]
    total = flat[0]
    factor = 1 / (total + ONE_COUNT)
    scale = ONE_COUNT * factor
    shares = [x * scale for x in below]
    for symbol, n in zip(flat[1::2], flat[2::2], strict=True):
        i = place.get(symbol)
        if i is not None:
            shares[i] += n * factor
    few, some, many, most = _UNITS
    seen = (
        0 if total < few else 2 if total < some else 4 if total < many else 6 if total < most else 8
    )
    return shares, seen
