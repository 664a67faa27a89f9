"""Contexts learn many outcomes at once, by compiled code, where it knows the policy of them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from learners.policy import Policy
from processing.config import Objectives
from processing.contexts.context import Context, ContextPath
from processing.state.counters import OutcomeRow

STAKES_RATE: Final = 0.05
"""Of the moving averages of gain and cost."""


def only_policy(chains: Sequence[ContextPath]) -> Policy | None:
    """Return the policy that learns in every context of some chains; None: there are several."""
    policy = chains[0].groups[0][0]
    for chain in chains:
        if len(chain.groups) > 1 or chain.groups[0][0] is not policy:
            return None
    return policy


def update_from_rows(
    rule: Any, weights: Objectives, told: Sequence[OutcomeRow], compiled: Any
) -> None:
    """Have contexts learn what they were told; see `update_many`."""
    numbers: dict[ContextPath, int] = {}
    whose = [numbers.setdefault(each[-1], len(numbers)) for each in told]
    rows = np.array([each[4:6] for each in told], np.int64)
    of = np.array([each[:4] for each in told], np.float64)
    update_many(rule, weights, list(numbers), np.array(whose, np.int64), rows, of, compiled)


def update_many(
    rule: Any, weights: Objectives, chains: Sequence[ContextPath], whose: Any, rows: Any, numbers:
    Any, compiled: Any,
) -> None:  # fmt: skip
    """Have the contexts of chains learn what `Lessons` has them learn, to the bit, and count it.

    `rule`: the policy of all of them, compiled; `whose`: of each outcome the number of its chain;
    `rows` and `numbers`: of outcomes in order, as in a `Scan`. Nothing that a context was told may
    wait.
    """
    known: dict[Context, int] = {}
    places = [[known.setdefault(each, len(known)) for each in chain.contexts] for chain in chains]
    deepest = max(map(len, places))
    table = np.array([[*of, *(-1,) * (deepest - len(of))] for of in places], np.int64)
    joined = bytearray().join([context.packed() for context in known])
    words = np.frombuffer(joined, np.int64).reshape(len(known), -1)
    said = weights.success, weights.latency, weights.cost
    floats = words.view(np.float64)
    whose = np.ascontiguousarray(whose)  # or it is compiled once more, and the worker waits for it
    compiled.teach(rule, said, STAKES_RATE, whose, table, rows, numbers, words, floats)
    changed, size = bytes(joined), 8 * words.shape[1]
    for place, context in enumerate(known):
        context.pack(changed[place * size : (place + 1) * size])
