"""What past runs add to the confidence of a guess: calibrated votes, or the sources' boost. Pure.

Neither adds a guess or makes a tool eligible, and fewer than two independent writers raise nothing,
unless there is no other: where all past runs are the user's own, they suffice (`sole_writer`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, Protocol, get_args

from headstart.prediction.interface import PastRuns, PredictedCall, ToolCall
from headstart.speculation.argument_equality import same_arguments
from memory.cases.case import Case, words
from memory.cases.writers import AGENT, USER
from memory.episodes.hashes import id_text
from memory.ranking.boost import boosted, recent, successes
from memory.ranking.evidence import (
    LEAST_WRITERS,
    NO_VOTE,
    CalibratedConfidence,
    CallIndex,
    RunSoFar,
    Vote,
    guarded,
    independent_writers,
)

MOST_CALLS: Final = 64
"""Calls of a run after which past runs are not asked any more, as in `memory evaluate`."""
SoleWriter = Literal["user", "agent", "none"]
"""Which writer's own runs suffice where the past runs have no other writer."""


class RunShown(NamedTuple):
    """What a run has shown so far: its writer, the user's messages, and its calls in order."""

    writer: str
    texts: list[str]
    calls: list[ToolCall]


class JudgedCall(NamedTuple):
    """A guess with the confidence that it gets, and what the rule learns from its outcome."""

    guess: PredictedCall
    own: float
    vote: Vote = NO_VOTE


class RunRule(Protocol):
    """A rule over the cases of one snapshot, for one run."""

    def judged(self, guesses: Sequence[PredictedCall], now_ms: int, /) -> list[JudgedCall]:
        """Return the guesses with their confidences. `now_ms`: Unix ms."""
        ...

    def called(self, call: ToolCall) -> None:
        """Take in a call of the run, as episodes have it."""
        ...


class ConfidenceRule(Protocol):
    """Makes the rule of each run, and learns from all of them. Thread-safe."""

    def run(self, index: CallIndex, shown: RunShown) -> RunRule:
        """Begin with what the run has shown so far."""
        ...

    def learn(self, judged: Sequence[JudgedCall], calls: Sequence[ToolCall]) -> None:
        """Learn which guesses were right: those that equal one of the calls."""
        ...


class CalibratedVotes:
    """Votes of past runs whose calls so far are alike, in an online logistic; the default.

    `memory.ranking.evidence` has the rule; `headstart memory evaluate` judges it. Each guess is
    learned with its outcome, so the confidence stays calibrated.
    """

    def __init__(
        self, *, least_writers: int = LEAST_WRITERS, sole_writer: SoleWriter = "user"
    ) -> None:
        """Raise `ValueError` for fewer than two writers: one could then steer everybody's guesses.

        `least_writers`: independent writers that must speak for a guess to raise its confidence.
        `sole_writer`: a run's own writer suffices where all past runs are its own. "user": a user;
        "agent": also an agent whose runs name no user, so that any user of it can steer it;
        "none": no writer.
        """
        self.least_writers = _checked(least_writers)
        self.sole_writer = _known(sole_writer)
        self.calibrated = CalibratedConfidence()
        self.lock = threading.Lock()

    def run(self, index: CallIndex, shown: RunShown) -> _VotesOfRun:
        """Begin with what the run has shown so far."""
        return _VotesOfRun(self, index, shown)

    def learn(self, judged: Sequence[JudgedCall], calls: Sequence[ToolCall]) -> None:
        """Learn which guesses were right."""
        with self.lock:
            for each in judged:
                right = any(_same(each.guess, call) for call in calls)
                self.calibrated.learn(each.own, each.guess.tool, each.vote, right)


class _VotesOfRun:
    def __init__(self, rule: CalibratedVotes, index: CallIndex, shown: RunShown) -> None:
        self._rule = rule
        self._least = _least(rule, index, shown)
        self._so_far = RunSoFar(index, shown.writer)
        self._calls = 0
        for call in shown.calls:
            self.called(call)

    def called(self, call: ToolCall) -> None:
        self._calls += 1
        if self._calls <= MOST_CALLS:
            self._so_far.call(call)

    def judged(self, guesses: Sequence[PredictedCall], _now_ms: int, /) -> list[JudgedCall]:
        vote = self._so_far.vote() if 0 < self._calls <= MOST_CALLS else NO_VOTE
        with self._rule.lock:
            return [self._judged(guess, vote) for guess in guesses]

    def _judged(self, guess: PredictedCall, vote: Vote) -> JudgedCall:
        own, tool, calibrated = guess.confidence, guess.tool, self._rule.calibrated
        without = calibrated.confidence(own, tool)
        writers = vote.writers.get(tool, 0)
        found = guarded(without, calibrated.confidence(own, tool, vote), writers, self._least)
        share = vote.share(tool) if vote.runs else None
        past = PastRuns(own, vote.runs, writers, share, _ids(vote.cases))
        return JudgedCall(guess._replace(confidence=found, memory=past), own, vote)


class SuccessBoost:
    """+2 % for each successful run of the last 7 days with the tool, of the 5 most alike.

    The rule of source documents 000 and 001; the most alike are those whose queries share the most
    words (Jaccard), the newest first. Measured, it changes nearly nothing.
    """

    def __init__(
        self, *, least_writers: int = LEAST_WRITERS, sole_writer: SoleWriter = "user"
    ) -> None:
        """Raise `ValueError` for fewer than two writers; see `CalibratedVotes`."""
        self.least_writers = _checked(least_writers)
        self.sole_writer = _known(sole_writer)

    def run(self, index: CallIndex, shown: RunShown) -> _BoostOfRun:
        """Begin with what the run has shown so far."""
        return _BoostOfRun(_least(self, index, shown), index, shown)

    def learn(self, judged: Sequence[JudgedCall], calls: Sequence[ToolCall]) -> None:
        """Learn nothing."""


class _BoostOfRun:
    def __init__(self, least_writers: int, index: CallIndex, shown: RunShown) -> None:
        self._least, self._index, self._shown = least_writers, index, shown
        self._similar: list[Case] = []
        self._asked = -1

    def called(self, call: ToolCall) -> None:
        pass

    def judged(self, guesses: Sequence[PredictedCall], now_ms: int, /) -> list[JudgedCall]:
        if self._asked != len(self._shown.texts):
            self._asked = len(self._shown.texts)
            self._similar = most_alike(self._index.cases, " ".join(self._shown.texts))
        return [self._judged(guess, now_ms) for guess in guesses]

    def _judged(self, guess: PredictedCall, now_ms: int) -> JudgedCall:
        own, tool = guess.confidence, guess.tool
        asked = recent(self._similar, now_ms)
        speaking = independent_writers((each.writer, tool) for each in successes(tool, asked))
        writers = speaking.get(tool, 0)
        found = guarded(own, boosted(own, tool, self._similar, now_ms), writers, self._least)
        past = PastRuns(own, len(asked), writers, None, _ids(each.key for each in asked))
        return JudgedCall(guess._replace(confidence=found, memory=past), own)


def most_alike(cases: Sequence[Case], query: str) -> list[Case]:
    """Return the cases whose queries share words with one, most alike first, then newest.

    `cases`: oldest first. The share is that of common words in all words of both (Jaccard 1901).
    """
    asked = set(words(query))
    scored = []
    for place, case in enumerate(cases):
        own = set(words(case.query))
        if common := len(asked & own):
            scored.append((common / len(asked | own), place))
    return [cases[place] for _, place in sorted(scored, reverse=True)]


def _same(guess: PredictedCall, call: ToolCall) -> bool:
    return guess.tool == call.tool and same_arguments(guess.arguments, call.arguments)


def _ids(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(id_text(int(key)) for key in keys)


def is_sole_writer(index: CallIndex, writer: str, allowed: SoleWriter) -> bool:
    """Return whether all past runs are of the run's own writer, and it is of an allowed kind."""
    kinds = {"user": (USER,), "agent": (USER, AGENT), "none": ()}[allowed]
    return writer.startswith(kinds) and all(case.writer == writer for case in index.cases)


def _least(rule: CalibratedVotes | SuccessBoost, index: CallIndex, shown: RunShown) -> int:
    """Return how many writers must speak for a guess of this run."""
    alone = is_sole_writer(index, shown.writer, rule.sole_writer)
    return min(1, rule.least_writers) if alone else rule.least_writers


def _known(sole_writer: SoleWriter) -> SoleWriter:
    if sole_writer not in get_args(SoleWriter):
        raise ValueError(f"sole_writer must be user, agent or none, not {sole_writer!r:.100}")
    return sole_writer


def _checked(least_writers: int) -> int:
    if isinstance(least_writers, bool) or not isinstance(least_writers, int) or least_writers < 2:
        raise ValueError(f"least_writers must be at least 2, not {least_writers!r:.100}")
    return least_writers
