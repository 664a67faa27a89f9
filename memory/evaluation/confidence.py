"""Replays guesses of the next tool, and what votes of past runs add to their confidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import log
from typing import Final, NamedTuple

from memory.cases.case import Case
from memory.evaluation.columns import Column, leaves_first_call, leaves_task
from memory.ranking.evidence import (
    NO_VOTE,
    BackOffGuess,
    CalibratedConfidence,
    CallIndex,
    RunSoFar,
)

RATIO: Final = 0.7
"""cost / (cost + gain): a guess of this confidence is worth starting."""
MOST_CALLS: Final = 64
"""Calls of a run that are guessed."""


class JudgedGuesses(NamedTuple):
    """The guesses of a run, in sums: log loss in nats, utility in units of gain + cost.

    Each has two entries: without votes, and with them.
    """

    cluster: str
    guesses: int
    log_loss: tuple[float, float]
    utility: tuple[float, float]


def judged_guesses(
    cases: Sequence[Case],
    *,
    column: Column = "all",
    reached: Callable[[], None] = lambda: None,
) -> Iterator[JudgedGuesses]:
    """Yield each run of one kind with how good the confidences of its guesses were.

    Each call after the first is guessed by back-off of order 2, then learned.
    """
    index, back_off = CallIndex(), BackOffGuess()
    plain, voted = CalibratedConfidence(with_votes=False), CalibratedConfidence()
    for case in cases:
        tools = case.tools[:MOST_CALLS]
        run = RunSoFar(
            index,
            case.writer,
            case.task if leaves_task(column) else "",
            without_first_call=leaves_first_call(column),
        )
        count, losses, utilities = 0, [0.0, 0.0], [0.0, 0.0]
        for place in range(1, len(tools)):
            run.call(case.calls[place - 1])
            guess = back_off.guess(tools[:place])
            if guess is None:
                continue
            tool, own = guess
            vote, right = run.vote(), tool == tools[place]
            found = plain.confidence(own, tool), voted.confidence(own, tool, vote)
            for arm, confidence in enumerate(found):
                losses[arm] -= log(confidence if right else 1 - confidence)
                utilities[arm] += (right - RATIO) if confidence >= RATIO else 0.0
            plain.learn(own, tool, NO_VOTE, right)
            voted.learn(own, tool, vote, right)
            count += 1
        for place in range(1, len(tools)):
            back_off.learn(tools[:place], tools[place])
        index.add(case)
        yield JudgedGuesses(
            case.task or case.key, count, (losses[0], losses[1]), (utilities[0], utilities[1])
        )
        reached()
