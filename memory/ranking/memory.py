"""The memory of one kind of runs, in one object: ask for evidence, and learn finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memory.cases.case import Case
from memory.cases.clusters import CLUSTERS, CaseCluster, clusters
from memory.ranking.asked import AskedBank, FinishedRun
from memory.ranking.bank import CaseBank, CaseQuestion
from memory.ranking.candidates import best_cases
from memory.ranking.choice import LearnedChoice
from memory.ranking.q_function import votes
from memory.ranking.votes import capped


class EvidenceSet(NamedTuple):
    """What past runs say of a question.

    `clusters`: at most `limit`, confirmed ones first, then those of the highest votes. `abstained`:
    retrieval has not been better than the usual course so far, or there is no case, so the clusters
    are not worth showing.
    `likeliest`, `course`: tools after the first call, None without a case.
    """

    clusters: Sequence[CaseCluster]
    abstained: bool
    likeliest: tuple[str, ...] | None
    course: tuple[str, ...] | None


class CaseMemory:
    """A bank of cases and what was learned of it. Deterministic."""

    def __init__(self, choice: LearnedChoice | None = None) -> None:
        self.bank = CaseBank()
        self.choice = choice or LearnedChoice()

    def ask(self, question: CaseQuestion, limit: int = CLUSTERS) -> EvidenceSet:
        """Return what past runs say. `limit`: clusters at most."""
        asked = AskedBank(self.bank, question)
        found = self.choice.answer(asked)
        if found.course is None or found.likeliest is None:
            return EvidenceSet((), True, None, None)
        scores = self.choice.function.scores(asked)
        best = best_cases(asked, scores)
        voted = capped(asked, best, votes(scores[best]))
        cases = [self.bank.cases[row] for row in best]
        grouped = clusters(cases, voted.weights.tolist(), limit, question.writer)
        table = self.bank.table
        return EvidenceSet(
            grouped, self.choice.abstains, table[found.likeliest], table[found.course]
        )

    def learn(
        self, case: Case, vector: npt.NDArray[np.float32] | None = None, *, without_task: str = ""
    ) -> None:
        """Learn a finished run with at least one call, then keep it as a case."""
        if len(self.bank):
            question = CaseQuestion(case.query, case.calls[0], case.writer, vector, without_task)
            asked = AskedBank(self.bank, question)
            self.choice.learn(
                asked, FinishedRun(self.bank, self.bank.table.add(case.rest), case.reward)
            )
        self.bank.add(case, vector)
