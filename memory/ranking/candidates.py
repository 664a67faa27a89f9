"""The courses that may be expected after a first call, and the evidence for each."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from memory.ranking.asked import AskedBank
from memory.ranking.bank import Numbers, Rows
from memory.ranking.q_function import BEST, votes
from memory.ranking.votes import (
    Votes,
    capped,
    counted,
    distinct,
    few_a_writer,
    highest,
    shares,
    supported,
)

RECENT: Final = 8
"""Newest cases with an equal first call that vote."""
WINDOW: Final = 512
"""Newest cases after the same tool by which the typical course is judged."""
_FADING: Final = 0.8
"""Weight of a case with an equal first call, relative to the next newer one."""
EVIDENCE: Final = (
    "bias", "votes", "votes_alike", "same_call", "same_call_alike", "typical", "most_typical",
    "frequent", "most_frequent", "frequent_overall", "best_case", "typical_beside_same_call",
    "reward",
)  # fmt: skip


class Candidates(NamedTuple):
    """Courses, in ascending order of their numbers, and the evidence for each."""

    sequences: Rows
    evidence: Numbers
    """Shape (courses, len(EVIDENCE))."""
    supported: npt.NDArray[np.bool_]
    """Whether a course may be followed; see `votes.supported`."""
    rows: Rows
    """The cases that were retrieved, each once: those with an equal first call, then the best."""
    typical: int
    """Place of the typical course."""
    frequent: tuple[int, int]
    """Places of the most frequent course after the tool, and of all."""


class _Voters(NamedTuple):
    by_score: Votes
    recent: Votes
    usual: Votes
    any_tool: Votes


def candidates(asked: AskedBank, scores: Numbers) -> Candidates | None:
    """Return the courses that may be expected; None without a case.

    `scores`: of each case, by a Q-function.
    """
    if not len(asked.rows):
        return None
    best = best_cases(asked, scores)
    newest = few_a_writer(asked, asked.same_call[::-1], RECENT)
    of_tool, of_all = (
        few_a_writer(asked, rows[::-1], WINDOW) for rows in (asked.same_tool, asked.rows)
    )
    if not supported(asked, np.unique(asked.rests[of_tool]), of_tool).any():
        of_tool = of_all
    usual, any_tool = (capped(asked, rows, np.ones(len(rows))) for rows in (of_tool, of_all))
    voters = _Voters(
        capped(asked, best, votes(scores[best])),
        capped(asked, newest, _FADING ** np.arange(len(newest))),
        usual,
        any_tool,
    )
    return _gathered(asked, voters, scores)


def best_cases(asked: AskedBank, scores: Numbers) -> Rows:
    """Return the cases of the highest scores, of each other writer a few."""
    count = 4 * BEST
    while True:
        best = asked.best(scores, count)
        few = few_a_writer(asked, best, BEST)
        if len(few) == BEST or len(best) < count:
            return few
        count *= 8


def _gathered(asked: AskedBank, voters: _Voters, scores: Numbers) -> Candidates:
    rests = asked.rests
    common, by_usual = counted(rests, voters.usual)
    alike = asked.bank.alike.between(common, common) @ by_usual
    overall, by_any = counted(rests, voters.any_tool)
    trusted = supported(asked, common, voters.usual.rows)
    anywhere = supported(asked, overall, voters.any_tool.rows)
    usual = (
        int(common[highest(alike, trusted)]),
        int(common[highest(by_usual, trusted)]),
        int(overall[highest(by_any, anywhere)]),
    )
    rows = distinct(np.concatenate([voters.recent.rows, voters.by_score.rows]))
    sequences = np.unique([*rests[rows], *usual])
    to_usual = asked.bank.alike.between(sequences, common) @ by_usual
    typical, frequent, most = (int(np.searchsorted(sequences, number)) for number in usual)
    evidence = _evidence(asked, voters, sequences, scores, to_usual)
    evidence[typical, EVIDENCE.index("most_typical")] = 1
    evidence[frequent, EVIDENCE.index("most_frequent")] = 1
    followed = supported(asked, sequences, rows)
    followed[[typical, frequent, most]] = True
    return Candidates(sequences, evidence, followed, rows, typical, (frequent, most))


def _evidence(
    asked: AskedBank, voters: _Voters, sequences: Rows, scores: Numbers, to_usual: Numbers
) -> Numbers:
    rests, by_score = asked.rests, voters.by_score
    share, recent = (shares(sequences, rests, each) for each in (by_score, voters.recent))
    to_each = asked.bank.alike.between(sequences, sequences)
    best_case = np.full(len(sequences), -6.0)
    places = np.searchsorted(sequences, rests[by_score.rows])
    np.maximum.at(best_case, places, scores[by_score.rows])
    rewards = 2 * asked.bank.rewards.values[by_score.rows] - 1
    rewarded = Votes(by_score.rows, by_score.weights * rewards)
    nothing = np.zeros(len(sequences))
    columns = (
        nothing + 1,
        share,
        to_each @ share,
        recent,
        to_each @ recent,
        to_usual,
        nothing,  # most_typical, most_frequent: one course each
        shares(sequences, rests, voters.usual),
        nothing,
        shares(sequences, rests, voters.any_tool),
        1 / (1 + np.exp(-np.clip(best_case, -6, 6))),
        to_usual * bool(len(voters.recent.rows)),
        shares(sequences, rests, rewarded, by_score.weights),
    )
    return np.stack(columns, axis=1)
