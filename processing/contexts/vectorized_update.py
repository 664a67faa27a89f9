"""Lets contexts learn many outcomes at once by kernels, where one policy learns in all of them."""

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


def only_policy(paths: Sequence[ContextPath]) -> Policy | None:
    """Return the policy that learns in every context of some paths; None: there are several."""
    policy = paths[0].groups[0][0]
    for path in paths:
        if len(path.groups) > 1 or path.groups[0][0] is not policy:
            return None
    return policy


def update_from_rows(
    rule: Any, weights: Objectives, outcomes: Sequence[OutcomeRow], compiled: Any
) -> None:
    """Let contexts learn outcomes; see `update_many`."""
    numbers: dict[ContextPath, int] = {}
    path_of = [numbers.setdefault(each[-1], len(numbers)) for each in outcomes]
    integers = np.array([each[4:6] for each in outcomes], np.int64)
    floats = np.array([each[:4] for each in outcomes], np.float64)
    update_many(
        rule, weights, list(numbers), np.array(path_of, np.int64), integers, floats, compiled
    )


def update_many(
    rule: Any, weights: Objectives, paths: Sequence[ContextPath], path_of: Any, integers: Any,
    floats: Any, compiled: Any,
) -> None:  # fmt: skip
    """Let the contexts of paths learn and count outcomes, to the bit as `PendingUpdates` does.

    `rule`: their policy, compiled; `path_of`: of each outcome the index of its path; `integers` and
    `floats`: the outcomes in order, as in a `ScannedBatch`. These contexts have nothing pending.
    """
    known: dict[Context, int] = {}
    levels = [[known.setdefault(each, len(known)) for each in path.contexts] for path in paths]
    deepest = max(map(len, levels))
    table = np.array([[*of, *(-1,) * (deepest - len(of))] for of in levels], np.int64)
    joined = bytearray().join([context.packed() for context in known])
    words = np.frombuffer(joined, np.int64).reshape(len(known), -1)
    objectives = weights.success, weights.latency, weights.cost
    path_of = np.ascontiguousarray(path_of)  # another layout would compile the kernel again
    compiled.teach(
        rule, objectives, STAKES_RATE, path_of, table, integers, floats, words,
        words.view(np.float64),
    )  # fmt: skip
    changed, size = bytes(joined), 8 * words.shape[1]
    for index, context in enumerate(known):
        context.pack(changed[index * size : (index + 1) * size])
