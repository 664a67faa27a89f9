"""How much each word speaks for each tool: weights that are learned by gradient steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from struct import Struct
from typing import Final

from headstart.prediction.bounded_tables import RecentTable

_ONE: Final = 4_096  # 1.0, as a 16-bit number
_LARGEST: Final = 32_000
_RATE: Final = 0.15
_LEAST: Final = 6  # smaller steps are not worth their time
_MOST_TOOLS: Final = 8  # of a word: then the weight next to zero is forgotten
_STRUCTS: Final = [Struct(f"<{2 * n}h") for n in range(_MOST_TOOLS + 1)]


def largest_weight(packed: bytes) -> int:
    """Return the size of the largest weight of a word."""
    weights: tuple[int, ...] = _STRUCTS[len(packed) >> 2].unpack(packed)[1::2]
    return max(map(abs, weights))


class WordWeights:
    """A bounded table from the hash of a word to packed pairs of symbol and weight."""

    def __init__(self, limit: int) -> None:
        self.table: RecentTable[bytes] = RecentTable(limit)

    def add_to(self, scores: list[float], words: Sequence[int], place: Mapping[int, int]) -> None:
        """Add the weights of words to the scores of symbols; `place` is a symbol's index there."""
        sums = [0] * len(scores)
        young, old = self.table.young.get, self.table.old.get
        for word in words:
            packed = young(word) or old(word)
            if packed is not None:
                pairs = iter(_STRUCTS[len(packed) >> 2].unpack(packed))
                for symbol, weight in zip(pairs, pairs, strict=True):
                    if symbol in place:
                        sums[place[symbol]] += weight
        for i, total in enumerate(sums):
            scores[i] += total / _ONE

    def learn(self, words: Sequence[int], gradient: Sequence[tuple[int, float]]) -> None:
        """Move the weights of words along a gradient: pairs of symbol and difference."""
        rate = _RATE * _ONE / sqrt(1 + len(words))
        steps = [(symbol, step) for symbol, g in gradient if abs(step := int(rate * g)) > _LEAST]
        if not steps:
            return
        steps = steps[:_MOST_TOOLS]
        first = _STRUCTS[len(steps)].pack(*[x for step in steps for x in step])
        young, old, set_weights = self.table.young.get, self.table.old.get, self.table.set
        for word in words:
            packed = young(word) or old(word)
            set_weights(word, first if packed is None else _moved(packed, steps))


def _moved(packed: bytes, steps: Sequence[tuple[int, int]]) -> bytes:
    flat = list(_STRUCTS[len(packed) >> 2].unpack(packed))
    symbols = flat[::2]
    for symbol, step in steps:
        if symbol in symbols:
            i = 2 * symbols.index(symbol) + 1
            moved = flat[i] + step
            flat[i] = moved if -_LARGEST < moved < _LARGEST else flat[i]
        else:
            flat += (symbol, step)
    while len(flat) > 2 * _MOST_TOOLS:
        weights = [abs(weight) for weight in flat[1::2]]
        i = 2 * weights.index(min(weights))
        del flat[i : i + 2]
    return _STRUCTS[len(flat) >> 1].pack(*flat)
