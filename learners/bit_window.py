"""A sliding window of the last outcomes as bits of one float, exact up to 52 bits."""

from __future__ import annotations

from typing import Final

LARGEST: Final = 52


def push_bit(bits: float, bit: bool, size: int) -> float:
    """Return the window of `size` bits with one more bit, without the oldest."""
    return float(((int(bits) << 1) | bit) & ((1 << size) - 1))


def share_of_ones(bits: float, count: float, size: int) -> float:
    """Return the share of ones among the last `size` of `count` bits; `count` must be above 0."""
    return int(bits).bit_count() / min(count, size)
