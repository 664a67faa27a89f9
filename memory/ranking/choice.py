"""The default of the memory: which course to expect, by what has proved right so far.

Cases are retrieved by the Q-function and by an equal first call; beside them stand the typical and
the most frequent course, which need no retrieval. Two models learn online from every finished run
how right each kind of evidence is. Where retrieval helps it is followed; where it has been worse
than a rule without retrieval, that rule is (abstention).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from memory.ranking.asked import CASES, NOTHING, AskedBank, FinishedRun, Retrieved
from memory.ranking.candidates import Candidates, candidates
from memory.ranking.logistic import OnlineLogistic
from memory.ranking.q_function import QFunction
from memory.ranking.votes import highest

FIRST_ALIKE: Final = (-2.0, 0.5, 1.0, 1.0, 1.5, 3.0, 0.3, 0.5, 0.0, 0.0, 0.5, 0.0, 0.1)
FIRST_EXACT: Final = (-3.0, 3.0, 0.5, 2.0, 0.5, 0.5, 0.0, 2.0, 0.3, 0.5, 0.5, 0.0, 0.1)
"""Weights of `EVIDENCE` before anything is learned: the usual course, unless cases agree."""
FIRST_LEADS: Final = ((0.0, 0.0), (0.0, 0.0, 1.0))
"""Leads before anything is learned: the most frequent sequence is the likeliest until retrieval has
been right."""
MARGIN: Final = 0.5
"""Runs' worth by which a rule without retrieval must lead before it is followed instead."""
REMEMBERED: Final = 0.998
"""Share of a lead that is left after one more run: what was right long ago counts less."""


class Leads:
    """Which of several rules to follow: the first, unless another was clearly better so far."""

    def __init__(self, gains: Sequence[float]) -> None:
        self.gains = list(gains)

    def leader(self) -> int:
        """Return the number of the rule to follow."""
        best = max(range(len(self.gains)), key=self.gains.__getitem__)
        return best if self.gains[best] > self.gains[0] + MARGIN else 0

    def learn(self, gains: Sequence[float]) -> None:
        """Learn what following each rule would have gained in a run, 0 to 1."""
        self.gains = [REMEMBERED * old + new for old, new in zip(self.gains, gains, strict=True)]


class LearnedChoice:
    """Chooses among courses by learned evidence. Deterministic."""

    def __init__(self, function: QFunction | None = None) -> None:
        self.function = function or QFunction()
        self.alike, self.exact = OnlineLogistic(FIRST_ALIKE), OnlineLogistic(FIRST_EXACT)
        self.alike_leads, self.exact_leads = Leads(FIRST_LEADS[0]), Leads(FIRST_LEADS[1])
        self._last: tuple[AskedBank, Candidates | None] | None = None

    @property
    def abstains(self) -> bool:
        """Whether rules without retrieval have been better so far, for both purposes."""
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
        return (
            (_chosen(self.alike, found), found.typical),
            (_chosen(self.exact, found), *found.frequent),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON, from which `from_json` makes it again to the bit."""
        return {
            "q": self.function.to_json(),
            "alike": self.alike.to_json(),
            "exact": self.exact.to_json(),
            "leads": [self.alike_leads.gains, self.exact_leads.gains],
        }

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> LearnedChoice:
        """Return what `to_json` described."""
        found = cls(QFunction.from_json(state["q"]))
        found.alike = OnlineLogistic.from_json(state["alike"])
        found.exact = OnlineLogistic.from_json(state["exact"])
        found.alike_leads, found.exact_leads = (Leads(gains) for gains in state["leads"])
        return found


def _chosen(model: OnlineLogistic, found: Candidates) -> int:
    scores = np.zeros(len(found.sequences))
    for weight, column in zip(model.weights, found.evidence.T, strict=True):
        scores += weight * column
    return highest(scores, found.supported)
