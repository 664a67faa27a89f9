"""The default of the memory: which course to expect, by what has proved right so far.

Cases are retrieved by the Q-function and by an equal first call; beside them stand the typical and
the most frequent course, which need no retrieval. Two models learn online from every finished run
how right each kind of evidence is. Retrieval is followed while it has clearly been better than the
rules without it; else the best of those is (abstention).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from memory.ranking.asked import CASES, NOTHING, AskedBank, FinishedRun, Retrieved
from memory.ranking.candidates import Candidates, candidates
from memory.ranking.logistic import OnlineLogistic
from memory.ranking.q_function import QFunction
from memory.ranking.standing import DiscountedGain
from memory.ranking.votes import highest

FIRST_ALIKE: Final = (-2.0, 0.5, 1.0, 1.0, 1.5, 3.0, 0.3, 0.5, 0.0, 0.0, 0.5, 0.0, 0.1)
FIRST_EXACT: Final = (-3.0, 3.0, 0.5, 2.0, 0.5, 0.5, 0.0, 2.0, 0.3, 0.5, 0.5, 0.0, 0.1)
"""Weights of `EVIDENCE` before anything is learned: the usual course, unless cases agree."""


class Leads:
    """Which of several rules to follow: retrieval, a reference, and others without retrieval.

    The rule without retrieval is the reference, or the one with the clearest gain over it.
    Retrieval is followed while its gain over that rule is clear, so not before the first run.
    """

    def __init__(self, sums: Sequence[Sequence[Sequence[float]]]) -> None:
        """`sums`: what `to_json` returned."""
        self._over_each, self._over_reference = (
            [DiscountedGain(*each) for each in gains] for gains in sums
        )

    @classmethod
    def of(cls, rules: int) -> Leads:
        """Return what has learned nothing of so many rules."""
        return cls([[()] * (rules - 1), [()] * (rules - 2)])

    def leader(self) -> int:
        """Return the number of the rule to follow: 0 retrieval, 1 the reference."""
        leads = [0.0, *(each.lead for each in self._over_reference)]
        best = max(range(len(leads)), key=leads.__getitem__)
        return 0 if self._over_each[best].lead > 0 else best + 1

    def learn(self, rightness: Sequence[float]) -> None:
        """Learn how right each rule was for a run, 0 to 1."""
        retrieval, reference = rightness[:2]
        for gain, other in zip(self._over_each, rightness[1:], strict=True):
            gain.learn(retrieval - other)
        for gain, other in zip(self._over_reference, rightness[2:], strict=True):
            gain.learn(other - reference)

    def to_json(self) -> list[list[list[float]]]:
        """Return the state as JSON, from which it is made again to the bit."""
        return [[each.to_json() for each in gains]
                for gains in (self._over_each, self._over_reference)]  # fmt: skip


class LearnedChoice:
    """Chooses among courses by learned evidence. Deterministic."""

    def __init__(self, function: QFunction | None = None) -> None:
        self.function = function or QFunction()
        self.alike, self.exact = OnlineLogistic(FIRST_ALIKE), OnlineLogistic(FIRST_EXACT)
        self.alike_leads, self.exact_leads = Leads.of(4), Leads.of(3)
        self._last: tuple[AskedBank, Candidates | None] | None = None

    @property
    def abstains(self) -> bool:
        """Whether retrieval has not been better so far, for neither purpose."""
        return bool(self.alike_leads.leader() and self.exact_leads.leader())

    def answer(self, asked: AskedBank) -> Retrieved:
        """Return the course of the most convincing evidence, and the cases behind it."""
        found = candidates(asked, self.function.scores(asked))
        self._last = asked, found
        if found is None:
            return NOTHING
        alike, exact = self._rules(found)
        course = int(found.sequences[alike[self.alike_leads.leader()]])
        likeliest = int(found.sequences[exact[self.exact_leads.leader()]])
        agreeing = asked.rests[found.rows] == likeliest
        rows = np.concatenate([found.rows[agreeing], found.rows[~agreeing]])[:CASES]
        return Retrieved(likeliest, course, tuple(int(row) for row in rows))

    def learn(self, asked: AskedBank, run: FinishedRun) -> None:
        """Learn from every course that was considered, then the Q-function from the cases."""
        if self._last is not None and self._last[0] is asked:
            found = self._last[1]
        else:
            found = candidates(asked, self.function.scores(asked))
        if found is not None:
            alike = run.similarities(found.sequences)
            equal = found.sequences == run.sequence
            by_alike, by_exact = self._rules(found)
            self.alike_leads.learn([float(alike[place]) for place in by_alike])
            self.exact_leads.learn([float(equal[place]) for place in by_exact])
            for evidence, label, exact in zip(found.evidence, alike, equal, strict=True):
                self.alike.learn(evidence.tolist(), float(label))
                self.exact.learn(evidence.tolist(), float(exact))
        self.function.learn(asked, run)

    def _rules(self, found: Candidates) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the places that each rule for the course, and for the likeliest one, chooses."""
        after_tool, most = found.frequent
        return (
            (_chosen(self.alike, found), found.typical, after_tool, most),
            (_chosen(self.exact, found), most, after_tool),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, from which `from_json` makes it again to the bit."""
        return {
            "q": self.function.to_json(),
            "alike": self.alike.to_json(),
            "exact": self.exact.to_json(),
            "leads": [self.alike_leads.to_json(), self.exact_leads.to_json()],
        }

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> LearnedChoice:
        """Return what `to_json` described."""
        found = cls(QFunction.from_json(state["q"]))
        found.alike = OnlineLogistic.from_json(state["alike"])
        found.exact = OnlineLogistic.from_json(state["exact"])
        found.alike_leads, found.exact_leads = (Leads(sums) for sums in state["leads"])
        return found


def _chosen(model: OnlineLogistic, found: Candidates) -> int:
    scores = np.zeros(len(found.sequences))
    for weight, column in zip(model.weights, found.evidence.T, strict=True):
        scores += weight * column
    return highest(scores, found.supported)
