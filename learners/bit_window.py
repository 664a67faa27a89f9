"""The last outcomes of a context as bits of one float: exact up to 52 of them."""

from __future__ import annotations

from typing import Final

LARGEST: Final = 52


def push_bit(bits: float, bit: bool, size: int) -> float:
    """Return the window with one more bit, the oldest of `size` gone."""
    return float(((int(bits) << 1) | bit) & ((1 << size) - 1))


def share_of_ones(bits: float, count: float, size: int) -> float:
    """Return the share of ones among the last `size` of `count` bits, count above 0."""
    return int(bits).bit_count() / min(count, size)
