"""The plain way to score answers, all at once: what the engine's running sums are held against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from learners.modes import MODES, Rates, rates
from replay.engine.reference import Answer
from replay.predictions.outcomes_file import JudgedOutcome
from replay.predictions.utility import TURN, best_fixed, worth


@dataclass(frozen=True)
class Score:
    """What one policy earned. Shares are None where what they are a share of is not above 0.

    `utility`: gain over hits minus cost over misses among predictions at or above the threshold.
    `success_rate`: hits among those; `recall`: of all hits, those among them. `oscillations`: how
    often the served threshold of a context turned round by `TURN` or more. `modes`: how each of
    the three answers did (`learners.modes`).
    """

    utility: float
    share_of_best_fixed: float | None
    share_of_always: float | None
    above_always: float
    above_never: float
    success_rate: float | None
    recall: float | None
    speculated: int
    oscillations: int
    modes: dict[str, Rates]


@dataclass(frozen=True)
class Anchors:
    """What simple knowledge earns on the same outcomes: always, never, best fixed threshold.

    `best_fixed`: the sum over contexts (finest path) of what the best threshold for each would
    have earned, chosen in hindsight; one that refuses everything is among them.
    """

    best_fixed: float
    always: float
    never: float = 0.0


def anchors(judged: Sequence[JudgedOutcome]) -> Anchors:
    """Return what there was to earn."""
    contexts: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in judged:
        contexts[each.paths[-1]].append((each.outcome.confidence, worth(each)))
    return Anchors(fsum(map(best_fixed, contexts.values())), fsum(map(worth, judged)))


def score(judged: Sequence[JudgedOutcome], answers: Sequence[Answer], anchored: Anchors) -> Score:
    """Return what the answers earned on the outcomes they were given for."""
    pairs = list(zip(judged, answers, strict=True))
    started = [each for each, answer in pairs if each.outcome.confidence >= answer.threshold]
    utility = fsum(map(worth, started))
    hits = sum(each.outcome.correct for each in started)
    right = sum(each.outcome.correct for each in judged)
    paths: defaultdict[str, list[float]] = defaultdict(list)
    for each, answer in pairs:
        paths[each.paths[-1]].append(answer.served.speculate)
    counts = [0.0] * (2 * len(MODES))
    for each, answer in pairs:
        p, suggest = each.outcome.confidence, min(answer.served.suggest, answer.threshold)
        mode = 2 * ((p >= answer.threshold) + (p >= suggest))
        counts[mode] += 1.0
        counts[mode + 1] += each.outcome.correct
    return Score(
        utility=utility,
        share_of_best_fixed=_ratio(utility, anchored.best_fixed),
        share_of_always=_ratio(utility, anchored.always),
        above_always=utility - anchored.always,
        above_never=utility - anchored.never,
        success_rate=_ratio(hits, len(started)),
        recall=_ratio(hits, right),
        speculated=len(started),
        oscillations=sum(map(oscillations, paths.values())),
        modes=rates(tuple(counts)),
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0.0 else None


def oscillations(thresholds: Sequence[float], turn: float = TURN) -> int:
    """Return how often a series turned round, each time by `turn` at least."""
    turns, direction, extreme = 0, 0, thresholds[0]
    for value in thresholds:
        if (direction >= 0 and value > extreme) or (direction <= 0 and value < extreme):
            if direction or abs(value - extreme) >= turn:
                direction = direction or (1 if value > extreme else -1)
                extreme = value
        elif abs(value - extreme) >= turn:
            turns, direction, extreme = turns + 1, -direction, value
    return turns
