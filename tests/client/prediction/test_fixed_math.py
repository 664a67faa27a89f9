"""The tables of logarithms and exponentials are the same on every machine."""

from __future__ import annotations

from decimal import Decimal, localcontext

from headstart.prediction.fixed_math import (
    EXP,
    GRID,
    LN,
    LOGIT,
    ONE,
    PARTS,
    STEPS,
    exp_of_negative,
    softmax,
)

CLOSEST = Decimal(2) ** -26
"""Of an entry to where it would be rounded otherwise, in steps; a double's last bit is 2^-29."""


def assert_rounded_alike(exact: Decimal, entry: float) -> None:
    steps = exact * GRID
    assert abs(steps - round(steps)) < Decimal("0.5") - CLOSEST
    assert round(steps) == entry * GRID


def test_no_entry_is_close_to_where_it_would_be_rounded_otherwise() -> None:
    """So a C library whose log or exp is wrong in the last bits gives the same table."""
    with localcontext() as context:
        context.prec = 30
        for i in range(0, ONE + 8):
            assert_rounded_alike((Decimal(max(i, 0.5)) / ONE).ln(), LN[i])
        for i in range(len(EXP) - 1):
            assert_rounded_alike((Decimal(-i) / STEPS).exp(), EXP[i])
        for i in range(PARTS + 1):
            part = Decimal(i) / PARTS
            odds = (part + Decimal("0.005")) / (Decimal("1.005") - part)
            assert_rounded_alike(odds.ln(), LOGIT[i])


def test_a_softmax_adds_up_to_its_share() -> None:
    shares = softmax([1.0, 2.0, -40.0], 0.5)
    assert abs(sum(shares) - 0.5) < 1e-9
    assert shares[1] > shares[0] > shares[2] > 0
    assert exp_of_negative(100.0) == EXP[-1]
