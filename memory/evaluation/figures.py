"""Figures of an evaluation, with intervals by bootstrap over tasks (Efron & Tibshirani 1993)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from memory.evaluation.confidence import JudgedGuesses
from memory.evaluation.methods import LABELS, REFERENCE
from memory.evaluation.prequential import JudgedRun

ROUNDS: Final = 1_000
FEWEST: Final = 8
"""Tasks below which nothing can be said of the spread."""
_SEED: Final = 20_250

Numbers = npt.NDArray[np.float64]


def method_figures(runs: Sequence[JudgedRun]) -> dict[str, Any]:
    """Return the figures of each method that answered; None where nothing was judged.

    `delta_edit`: edit similarity minus that of the reference, with its interval.
    """
    clusters = [run.cluster for run in runs]
    reference = _column(runs, REFERENCE, "edit")
    found = {}
    for name in runs[0].by_method if runs else LABELS:
        edit = _column(runs, name, "edit")
        found[name] = {
            "exact": _mean(_column(runs, name, "exact")),
            "next": _mean(_column(runs, name, "next")),
            "edit": _mean(edit),
            "delta_edit": _mean(edit - reference),
            "delta_edit_interval": interval(clusters, edit - reference, np.ones(len(edit))),
            "set_f1": _mean(_column(runs, name, "set_f1")),
            "hit_rate": _mean(_column(runs, name, "hit")),
            "success_auc": _success_auc(runs, name),
        }
    return found


def evidence_figures(runs: Sequence[JudgedGuesses]) -> dict[str, Any]:
    """Return what votes add to the confidence of guesses; None where nothing was judged.

    Log loss in nats a guess, negative where votes help; utility at the ratio of .7, in thousandths
    of gain + cost a guess; the ratio is None where there is none without votes.
    """
    clusters = [run.cluster for run in runs]
    guesses = np.array([float(run.guesses) for run in runs])
    losses = np.array([run.log_loss for run in runs]).reshape(-1, 2)
    utility = np.array([run.utility for run in runs]).reshape(-1, 2).sum(axis=0)
    total = guesses.sum()
    if not total:
        return dict.fromkeys(
            ("guesses", "log_loss", "log_loss_with_votes", "log_loss_delta", "log_loss_interval",
             "utility", "utility_with_votes", "utility_ratio")
        ) | {"guesses": 0}  # fmt: skip
    change = losses[:, 1] - losses[:, 0]
    return {
        "guesses": int(total),
        "log_loss": float(losses[:, 0].sum() / total),
        "log_loss_with_votes": float(losses[:, 1].sum() / total),
        "log_loss_delta": float(change.sum() / total),
        "log_loss_interval": interval(clusters, change, guesses),
        "utility": float(1_000 * utility[0] / total),
        "utility_with_votes": float(1_000 * utility[1] / total),
        "utility_ratio": float(utility[1] / utility[0]) if utility[0] > 0 else None,
    }


def interval(clusters: Sequence[str], sums: Numbers, weights: Numbers) -> list[float] | None:
    """Return the 95 % interval of sum(sums) / sum(weights); None with too few clusters.

    Clusters are drawn with replacement, whole: runs of one task hang together.
    """
    names, inverse = np.unique(np.array(clusters, object), return_inverse=True)
    count = len(names)
    if count < FEWEST:
        return None
    of_sums, of_weights = (np.bincount(inverse, each, count) for each in (sums, weights))
    chance = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(ROUNDS):
        chosen = chance.integers(0, count, count)
        weight = of_weights[chosen].sum()
        if weight:
            drawn.append(of_sums[chosen].sum() / weight)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return [float(low), float(high)]


def area_under_curve(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Return how often a positive has a higher score than a negative; None without one of each."""
    values, is_positive = np.array(scores), np.array(positive, np.bool_)
    ones, others = int(is_positive.sum()), int((~is_positive).sum())
    if not ones or not others:
        return None
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[is_positive].sum() - ones * (ones + 1) / 2) / (ones * others))


def _success_auc(runs: Sequence[JudgedRun], name: str) -> float | None:
    known = [
        (judged.success, run.reward >= 1)
        for run in runs
        if run.reward is not None and (judged := run.by_method[name]).success is not None
    ]
    return area_under_curve([score or 0.0 for score, _ in known], [good for _, good in known])


def _column(runs: Sequence[JudgedRun], name: str, what: str) -> Numbers:
    return np.array([float(getattr(run.by_method[name], what)) for run in runs])


def _mean(values: Numbers) -> float | None:
    return float(values.mean()) if len(values) else None
