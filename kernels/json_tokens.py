"""Kernel: strings, numbers, names and other parts of JSON that hold nothing nested.

`w` holds, at each index of `buf`, the eight bytes from there on. What is not plain ends at -1.
"""

# ruff: noqa: PLR1714, SIM110 - compiled: branches are flat

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from kernels.layout import (
    COLON,
    COMMA,
    FACTORS,
    FALSE,
    FIVE,
    FOUR,
    HIGHS,
    K_SCALAR,
    LEFT,
    LONGEST,
    MASKS,
    NULL,
    ONE,
    ONES,
    QUOTE,
    QUOTES,
    RIGHT,
    SHIFT,
    SLASHES,
    SLOTS,
    SPACES,
    TRUE,
)

OPTIONS: Any = {"nogil": True, "_nrt": False}
kept: Any = njit(cache=True, **OPTIONS)
inlined: Any = njit(forceinline=True, **OPTIONS)
"""Inlined, because a call passes seven words for every array. Without reference counting of arrays,
which takes half of the time: nothing here creates or keeps one."""
EXACT: Final = 1 << 53
TENS: Final = np.array([10.0**power for power in range(23)])
SPLIT: Final = 134_217_729.0
MOST_DIGITS: Final = 100_000_000_000_000_000


@inlined
def string_end(w: Any, buf: Any, at: int, end: int) -> int:
    """Return where the string whose text begins at `at` has its closing quote; -1 if not plain.

    Eight bytes at a time: the lowest mark is the first byte that is a quote, a backslash, below a
    space, or not ASCII (https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord).
    """
    while at < end:
        word = w[at]
        quotes, slashes = word ^ QUOTES, word ^ SLASHES
        marks = (
            word
            | ((quotes - ONES) & ~quotes)
            | ((slashes - ONES) & ~slashes)
            | ((word - SPACES) & ~word)
        ) & HIGHS
        if marks == 0:
            at += 8
            continue
        lowest = marks & (~marks + ONE)
        if lowest & np.uint64(0xFFFFFFFF00000000):
            at += 4
        if lowest & np.uint64(0xFFFF0000FFFF0000):
            at += 2
        if lowest & np.uint64(0xFF00FF00FF00FF00):
            at += 1
        return at if at < end and buf[at] == QUOTE else -1
    return -1


@inlined
def key_end(w: Any, buf: Any, at: int, end: int) -> int:
    """Return where the name of a field that begins at `at` ends, two bytes before its value."""
    after = string_end(w, buf, at, end)
    return after if 0 <= after < end - 1 and buf[after + 1] == COLON else -1


@inlined
def read_number(buf: Any, at: int, end: int) -> tuple[int, int, int]:
    """Return where a number ends, its digits, and how many of them are a fraction.

    The end is -1 where it has a sign, an exponent, or more than 18 significant digits.
    """
    first, digits, fraction = at, 0, 0
    while at < end and 48 <= buf[at] <= 57:
        if digits >= MOST_DIGITS:
            return -1, 0, 0
        digits = digits * 10 + (buf[at] - 48)
        at += 1
    if at == first or (buf[first] == 48 and at - first > 1):
        return -1, 0, 0
    if at < end and buf[at] == 46:
        at += 1
        point = at
        while at < end and 48 <= buf[at] <= 57:
            if digits >= MOST_DIGITS:
                return -1, 0, 0
            digits = digits * 10 + (buf[at] - 48)
            at += 1
        fraction = at - point
        if fraction == 0 or fraction > 22:
            return -1, 0, 0
    if at < end and (buf[at] == 101 or buf[at] == 69):
        return -1, 0, 0
    return at, digits, fraction


@inlined
def rounded(digits: int, fraction: int) -> float:
    """Return the double nearest to `digits` / 10**`fraction`; NaN where this cannot decide it.

    Up to 2**53 both are doubles, and one division rounds once (Clinger 1990). Above, the quotient
    is corrected by the exact remainder (Dekker 1971), which is right except next to a tie.
    """
    tens = TENS[fraction]
    high = np.float64(digits)
    if digits <= EXACT:
        return high / tens
    low = np.float64(digits - np.int64(high))
    quotient = high / tens
    split = SPLIT * quotient
    quotient_high = split - (split - quotient)
    quotient_low = quotient - quotient_high
    split = SPLIT * tens
    tens_high = split - (split - tens)
    tens_low = tens - tens_high
    product = quotient * tens
    over = quotient_low * tens_low - (
        ((product - quotient_high * tens_high) - quotient_low * tens_high)
        - quotient_high * tens_low
    )
    missing = (((high - product) - over) + low) / tens
    least = quotient + missing * (1.0 - 1e-9)
    most = quotient + missing * (1.0 + 1e-9)
    return least if least == most else np.nan


@inlined
def scalar_end(w: Any, buf: Any, at: int, end: int) -> int:
    """Return where a value ends; -1 where it is nested or not plain."""
    if at >= end:
        return -1
    if buf[at] == QUOTE:
        after = string_end(w, buf, at + 1, end)
        return after + 1 if after >= 0 else -1
    word = w[at]
    if word & FOUR == TRUE or word & FOUR == NULL:
        return at + 4
    if word & FIVE == FALSE:
        return at + 5
    return read_number(buf, at + 1 if buf[at] == 45 else at, end)[0]


@inlined
def list_end(w: Any, buf: Any, at: int, end: int) -> int:
    """Return where an array of strings ends; -1 where it is not one or not plain."""
    if at >= end or buf[at] != LEFT:
        return -1
    at += 1
    if at < end and buf[at] == RIGHT:
        return at + 1
    while at < end and buf[at] == QUOTE:
        after = string_end(w, buf, at + 1, end)
        if after < 0 or after + 1 >= end:
            return -1
        if buf[after + 1] == RIGHT:
            return after + 2
        if buf[after + 1] != COMMA:
            return -1
        at = after + 2
    return -1


@inlined
def kind_of(w: Any, begin: int, end: int, of: int) -> Any:
    """Return the kind of a field by its name; `K_SCALAR` where the schema does not have it."""
    length = end - begin
    if length > LONGEST or length == 0:
        return K_SCALAR
    first, middle, last = w[begin], np.uint64(0), np.uint64(0)
    if length <= 8:
        first &= MASKS[length]
    else:
        last = w[end - 8]
        if length > 16:
            middle = w[begin + 8]
    slot = ((first ^ (last << ONE) ^ np.uint64(length)) * FACTORS[of]) >> SHIFT
    if (
        SLOTS[of, slot, 0] == first
        and SLOTS[of, slot, 1] == middle
        and SLOTS[of, slot, 2] == last
        and SLOTS[of, slot, 3] == length
    ):
        return np.int64(SLOTS[of, slot, 4])  # otherwise Numba infers doubles
    return K_SCALAR


@inlined
def one_of(w: Any, begin: int, end: int, literals: Any) -> int:
    """Return the index of the literal, of up to 16 bytes, that a span equals; -1 for none."""
    length = end - begin
    for place in range(literals.shape[0]):
        if literals[place, 3] == length:
            if length <= 8:
                if w[begin] & MASKS[length] == literals[place, 0]:
                    return place
            elif w[begin] == literals[place, 0] and w[end - 8] == literals[place, 2]:
                return place
    return -1


@inlined
def is_id(buf: Any, begin: int, end: int) -> bool:
    """Return whether a span is 36 characters in the form of a UUID."""
    if end - begin != 36:
        return False
    good = True
    for place in range(36):
        byte = buf[begin + place]
        if place == 8 or place == 13 or place == 18 or place == 23:
            good &= byte == 45
        else:
            good &= 48 <= byte <= 57 or 97 <= byte <= 102 or 65 <= byte <= 70
    return good


@inlined
def same(buf: Any, begin: int, end: int, other: Any, at: int, until: int) -> bool:
    """Return whether a span of `buf` equals one of `other`."""
    if end - begin != until - at:
        return False
    for place in range(end - begin):
        if buf[begin + place] != other[at + place]:
            return False
    return True
