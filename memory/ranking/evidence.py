"""Evidence for the confidence of a guess: what past runs did that made the same calls so far.

The share of their votes is a second input of an online logistic, beside the predictor's own
confidence; it counts where the runs are alike enough. The model learns how far to trust it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from math import log
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.prediction.interface import ToolCall
from memory.cases.case import Case, call_key
from memory.cases.writers import independent_count
from memory.ranking.logistic import OnlineLogistic, sigmoid
from memory.ranking.standing import REMEMBERED

NEIGHBOURS: Final = 8
"""Past runs that vote."""
OF_EACH: Final = 4
"""Most of them of one other writer: else the newest runs of one would leave no place to others."""
LEAST_ALIKE: Final = 0.6
"""Share of a run's calls, with arguments, that a past run must have made too."""
_NEVER: Final = -(1 << 40)
"""Equal calls of a run that does not vote, whatever else it has in common."""
_FIRST: Final = (0.0, 1.0, 0.0, 0.5, 0.0)


LEAST_WRITERS: Final = 2
"""Independent writers whose runs must have gone on as guessed before they raise a confidence."""


class Vote(NamedTuple):
    """Votes of past runs for the next tool; `runs`: how many voted.

    `writers`: the independent writers for each tool; `cases`: the keys of the runs, in their order.
    """

    votes: Mapping[str, float]
    runs: int
    writers: Mapping[str, int] = {}
    cases: tuple[str, ...] = ()

    def share(self, tool: str) -> float:
        """Return the share of the votes for a tool, (v + .5) / (n + 1)."""
        return (self.votes.get(tool, 0.0) + 0.5) / (sum(self.votes.values()) + 1.0)


NO_VOTE: Final = Vote({}, 0)


class CallIndex:
    """Past runs by their calls with arguments."""

    def __init__(self) -> None:
        self._rows: dict[bytes, array[int]] = {}
        self._places: dict[bytes, array[int]] = {}
        self._begun: dict[bytes, array[int]] = {}
        self.cases: list[Case] = []

    def add(self, case: Case) -> None:
        """Add a finished run."""
        number = len(self.cases)
        last: dict[bytes, int] = {call_key(call): at for at, call in enumerate(case.calls)}
        for key, place in last.items():
            self._rows.setdefault(key, array("q")).append(number)
            self._places.setdefault(key, array("q")).append(place)
        if case.calls:
            self._begun.setdefault(call_key(case.calls[0]), array("q")).append(number)
        self.cases.append(case)

    def found(self, key: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the runs that made a call, and their last place of it."""
        empty = array("q")
        return np.array(self._rows.get(key, empty)), np.array(self._places.get(key, empty))

    def begun(self, key: bytes) -> npt.NDArray[np.int64]:
        """Return the runs that began with a call."""
        return np.array(self._begun.get(key, array("q")), np.int64)


class RunSoFar:
    """A run, and the past runs that made its calls.

    `without_task`: a task that does not vote; `without_first_call`: nor do runs that began with an
    equal call.
    """

    def __init__(
        self,
        index: CallIndex,
        writer: str = "",
        without_task: str = "",
        *,
        without_first_call: bool = False,
    ) -> None:
        self._index, self._writer, self._without = index, writer, without_task
        self._without_first_call = without_first_call
        self._common = np.zeros(len(index.cases), np.int64)
        self._places = np.full(len(index.cases), -1, np.int64)
        self._seen: set[bytes] = set()

    def call(self, call: ToolCall) -> None:
        """Take in a call of the run."""
        key = call_key(call)
        if self._without_first_call and not self._seen:
            self._common[self._index.begun(key)] = _NEVER
        rows, places = self._index.found(key)
        if len(rows):
            self._places[rows] = places
            if key not in self._seen:
                self._common[rows] += 1
        self._seen.add(key)

    def vote(self) -> Vote:
        """Return what the most alike runs did next; of each other writer one vote in all."""
        rows = np.flatnonzero(self._common >= max(1.0, LEAST_ALIKE * len(self._seen)))
        if not len(rows):
            return NO_VOTE
        order = np.lexsort((-rows, -self._common[rows]))
        chosen: list[tuple[str, str]] = []
        keys: list[str] = []
        taken = Counter[str]()
        for row in rows[order]:
            case = self._index.cases[int(row)]
            if self._without and case.task == self._without:
                continue
            room = NEIGHBOURS - len(chosen)
            if case.writer != self._writer:
                room = min(room, OF_EACH - taken[case.writer])
            if room <= 0:
                continue
            after = int(self._places[row]) + 1
            tool = case.calls[after].tool if after < len(case.calls) else ""
            chosen += [(case.writer, tool)] * min(case.support, room)
            taken[case.writer] += min(case.support, room)
            keys.append(case.key)
            if len(chosen) == NEIGHBOURS:
                break
        by_writer = Counter(writer for writer, _ in chosen)
        votes: dict[str, float] = {}
        for writer, tool in chosen:
            weight = 1.0 if writer == self._writer else 1.0 / by_writer[writer]
            votes[tool] = votes.get(tool, 0.0) + weight
        return Vote(votes, len(chosen), independent_writers(chosen), tuple(keys))


def independent_writers(chosen: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return how many writers there are for each tool, from pairs of writer and tool."""
    found: dict[str, set[str]] = {}
    for writer, tool in chosen:
        found.setdefault(tool, set()).add(writer)
    return {tool: independent_count(writers) for tool, writers in found.items()}


def guarded(
    without: float, with_votes: float, writers: int, least_writers: int = LEAST_WRITERS
) -> float:
    """Return the confidence that may be used: that with votes, which too few writers only lower."""
    return with_votes if writers >= least_writers else min(without, with_votes)


class CalibratedConfidence:
    """Confidence of a guess by the predictor's own one, and by votes where there are some.

    Two models learn from each guess, one with votes and one without; the confidence is their mean,
    weighted by how likely each has made what happened so far. So votes that do not help cost
    nearly nothing.
    """

    def __init__(self, *, with_votes: bool = True) -> None:
        self._with_votes = with_votes
        self.model, self.alone = OnlineLogistic(_FIRST), OnlineLogistic(_FIRST[:2])
        self.lead = 0.0
        """Log likelihood of the model with votes less that of the other; old guesses count less."""

    @property
    def trust(self) -> float:
        """The weight of the model with votes, 0 to 1."""
        return sigmoid(self.lead)

    def confidence(self, own: float, tool: str, vote: Vote = NO_VOTE) -> float:
        """Return the probability that the guess is right. `own`: the predictor's, 0 to 1."""
        alone, voted = self._both(own, tool, vote)
        return alone + self.trust * (voted - alone) if self._with_votes else alone

    def learn(self, own: float, tool: str, vote: Vote, right: bool) -> None:
        """Learn whether the guess was right."""
        alone, voted = self._both(own, tool, vote)
        gain = log(voted / alone) if right else log((1 - voted) / (1 - alone))
        self.lead = REMEMBERED * self.lead + gain
        inputs = _inputs(own, tool, vote)
        self.alone.learn(inputs[:2], float(right))
        self.model.learn(inputs, float(right))

    def _both(self, own: float, tool: str, vote: Vote) -> tuple[float, float]:
        inputs = _inputs(own, tool, vote)
        return self.alone.probability(inputs[:2]), self.model.probability(inputs)


def _inputs(own: float, tool: str, vote: Vote) -> list[float]:
    odds = log_odds(own)
    if not vote.runs:
        return [1.0, odds, 0.0, 0.0, 0.0]
    return [1.0, odds, 1.0, log_odds(vote.share(tool)), odds]


def log_odds(probability: float) -> float:
    """Return the log odds of a probability, which is moved into .01 to .99."""
    bounded = min(max(probability, 0.01), 0.99)
    return log(bounded / (1.0 - bounded))


class BackOffGuess:
    """The most frequent tool after the last two, else the last one, else of all (Katz 1987).

    Its confidence is the share of that tool, mixed with the shorter context's by the number of
    observations (Witten & Bell 1991).
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], Counter[str]] = {}

    def guess(self, tools: tuple[str, ...]) -> tuple[str, float] | None:
        """Return the next tool and its confidence; None before anything was learned."""
        known = [c for c in _contexts(tools) if c in self._counts]
        if not known:
            return None
        tool = max(self._counts[known[0]].items(), key=lambda each: (each[1], each[0]))[0]
        share = 0.0
        for context in reversed(known):
            counts = self._counts[context]
            total, kinds = counts.total(), len(counts)
            share = (counts[tool] + kinds * share) / (total + kinds)
        return tool, share

    def learn(self, tools: tuple[str, ...], tool: str) -> None:
        """Learn which tool followed."""
        for context in _contexts(tools):
            self._counts.setdefault(context, Counter())[tool] += 1


def _contexts(tools: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tools[-2:], tools[-1:], ()
