"""What the Q-function sees of a case and a question."""

from __future__ import annotations

from typing import Final

import numpy as np

from memory.ranking.bank import CaseBank, Matches, Numbers, Rows
from memory.ranking.best_rows import best_rows

NAMES: Final = (
    "bias", "cosine", "cosine_rank", "words", "words_rank", "telling", "telling_rank",
    "equal_query", "parts", "equal_call", "equal_tool", "reward", "age", "newest_of_call", "helped",
    "typicality", "length", "equal_call_reward", "cosine_reward",
)  # fmt: skip
FIRST: Final = (
    -1.0, 0.5, 0.5, 0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 1.0, 0.5, 0.3, 0.0, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0,
)  # fmt: skip
"""Weights before anything is learned: alike and successful cases first."""
_RANKED = 64
"""Cases that have a rank."""


def features(bank: CaseBank, found: Matches, typical: Numbers) -> Numbers:
    """Return the features, shape (cases, len(NAMES)), all of about -1 to 1.

    `typical`: the typicality of each case's sequence for this question.
    """
    size = len(bank)
    ages = np.arange(size, 0, -1, dtype=np.float64)
    reward = 2 * bank.rewards.values - 1
    cosine = np.maximum(found.cosine, 0)
    helped = (bank.helped.values + 1) / (bank.shown.values + 2)
    equal = found.equal_call.astype(np.float64)
    newest = np.zeros(size)
    rows = found.rows[found.equal_call[found.rows]]
    if len(rows):
        newest[rows] = 1 / np.arange(len(rows), 0, -1)
    columns = (
        np.ones(size),
        cosine,
        inverse_ranks(cosine, found.rows),
        found.words,
        inverse_ranks(found.words, found.rows),
        np.minimum(found.telling, 8) / 4,
        inverse_ranks(found.telling, found.rows),
        found.equal_query.astype(np.float64),
        found.parts,
        equal,
        found.equal_tool.astype(np.float64),
        reward,
        -np.log1p(ages) / 10,
        newest,
        2 * helped - 1,
        typical,
        np.minimum(bank.lengths.values, 32) / 32,
        equal * reward,
        cosine * reward,
    )
    return np.stack(columns).T  # each feature is read as a whole


def inverse_ranks(scores: Numbers, rows: Rows) -> Numbers:
    """Return 1 / rank of the best ones among the cases that count, 0 for the others.

    Equal scores share the best rank; nothing scores where all are 0.
    """
    found = np.zeros(len(scores))
    if not len(rows):
        return found
    best = best_rows(scores, rows, _RANKED)
    best = best[scores[best] > 0]
    if len(best):
        values = scores[best]
        first = np.searchsorted(-values, -values, side="left")
        found[best] = 1 / (1 + first)
    return found
