"""How far reading or evaluating runs is."""

from __future__ import annotations

from typing import NamedTuple


class MemoryProgress(NamedTuple):
    """`share`: 0 to 1; `predictions`: runs or events so far; `seconds` since it began."""

    share: float
    predictions: int
    seconds: float
