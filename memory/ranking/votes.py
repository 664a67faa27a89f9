"""Votes of cases for courses: each writer other than the run's own has one in all."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memory.ranking.asked import CASES, AskedBank
from memory.ranking.bank import Numbers, Rows


class Votes(NamedTuple):
    """Cases and the weights of their votes."""

    rows: Rows
    weights: Numbers


def few_a_writer(asked: AskedBank, rows: Rows, most: int) -> Rows:
    """Return the first `most` rows, without those of another writer that follow `CASES` of it."""
    writers, own = asked.bank.writers.values, asked.found.own
    count = 4 * most
    while True:
        first = rows[:count]
        kept: Rows = first[few_of_each(writers[first], own[first])][:most]
        if len(kept) == most or len(first) == len(rows):
            return kept
        count *= 8


def few_of_each(writers: Rows, own: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which of ranked cases stay: of each writer `CASES`, of the run's own all."""
    if len(writers) <= CASES:
        return np.ones(len(writers), np.bool_)
    order = np.argsort(writers, kind="stable")
    ordered = writers[order]
    place = np.empty(len(writers), np.int64)
    place[order] = np.arange(len(writers)) - np.searchsorted(ordered, ordered, side="left")
    kept: npt.NDArray[np.bool_] = (place < CASES) | own
    return kept


def capped(asked: AskedBank, rows: Rows, weights: Any) -> Votes:
    """Return votes of which those of another writer weigh as much as its strongest one."""
    writers, own = asked.bank.writers.values[rows], asked.found.own[rows]
    return Votes(rows, one_each(writers, own, np.asarray(weights, np.float64)))


def one_each(
    writers: Rows, own: npt.NDArray[np.bool_], weights: Numbers, runs: Numbers | None = None
) -> Numbers:
    """Return the weights of votes; those of another writer are, in all, as its strongest one.

    `runs`: how many equal votes each one is, 1 without.
    """
    if not len(writers):
        return weights
    names, inverse = np.unique(writers, return_inverse=True)
    strongest = np.zeros(len(names))
    np.maximum.at(strongest, inverse, weights)
    counted = weights if runs is None else weights * runs
    share = (strongest / np.bincount(inverse, counted))[inverse]
    return np.where(own, counted, counted * share)


def supported(asked: AskedBank, sequences: Rows, rows: Rows) -> npt.NDArray[np.bool_]:
    """Return for each course whether those who took it suffice to follow it.

    One other writer does not if it repeats itself (`CASES` times), nor against cases of the run's
    own writer with an equal first call. `sequences`: ascending; `rows`: cases, each once.
    """
    found = np.ones(len(sequences), np.bool_)
    numbers = asked.rests[rows]
    places = np.minimum(np.searchsorted(sequences, numbers), len(sequences) - 1)
    there = sequences[places] == numbers
    rows, places = rows[there], places[there]
    if not len(rows):
        return found
    own, writers = asked.found.own[rows], asked.bank.writers.values[rows]
    taken = np.bincount(places, minlength=len(sequences))
    by_own = np.bincount(places, own, len(sequences)) > 0
    lowest = np.full(len(sequences), len(asked.bank))
    topmost = np.full(len(sequences), -1)
    np.minimum.at(lowest, places, writers)
    np.maximum.at(topmost, places, writers)
    most = 0 if (own & asked.found.equal_call[rows]).any() else CASES - 1
    found[(taken > most) & (lowest == topmost) & ~by_own] = False
    return found


def highest(scores: Numbers, allowed: npt.NDArray[np.bool_] | None = None) -> int:
    """Return the place of the highest score among those allowed, if any is; of equals the first."""
    if allowed is not None and allowed.any():
        scores = np.where(allowed, scores, -np.inf)
    return int(np.argmax(np.round(scores, 9)))


def counted(rests: Rows, votes: Votes) -> tuple[Rows, Numbers]:
    """Return the distinct sequences of votes, and the share of each."""
    sequences = np.unique(rests[votes.rows])
    return sequences, shares(sequences, rests, votes)


def shares(sequences: Rows, rests: Rows, votes: Votes, total: Numbers | None = None) -> Numbers:
    """Return the share of the votes that each sequence has; 0 without votes.

    `sequences`: ascending; `total`: the weights that shares are of, if others than the votes'.
    """
    found = np.zeros(len(sequences))
    if not len(votes.rows):
        return found
    numbers = rests[votes.rows]
    places = np.minimum(np.searchsorted(sequences, numbers), len(sequences) - 1)
    there = sequences[places] == numbers
    np.add.at(found, places[there], votes.weights[there])
    whole: Numbers = votes.weights if total is None else total
    return found / float(whole.sum())


def distinct(rows: Rows) -> Rows:
    """Return rows in their order, each once."""
    _, first = np.unique(rows, return_index=True)
    found: Rows = rows[np.sort(first)]
    return found
