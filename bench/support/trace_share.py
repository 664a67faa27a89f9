"""Real agent runs as judged predictions.

Runs in shuffled order, one pass; the next tool is guessed by the demo's back-off predictor, which
learns online per domain; guesses that a run ends are left out. Contexts: default, domain, +
previous tool, + the one before. Gain 1 - r, cost r.

The back-off predictor is overconfident after few tries. `with_evidence` makes up for that within
the confidence (docs/decisions/0027-calibrated-guesses.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import fsum
from random import Random

from demo.predictor import PredictedTool, ToolPredictor
from demo.traces import END, TraceRun
from learners.outcome import Outcome
from replay.predictions.outcomes_file import ROOT, JudgedOutcome
from replay.predictions.utility import best_fixed, worth


def predictions(
    runs: Sequence[TraceRun], seed: int, r: float, *, evidence: bool = False
) -> list[JudgedOutcome]:
    """Return the judged predictions of one order of the runs.

    `evidence`: their confidences are those of `with_evidence`.
    """
    order = list(runs)
    Random(seed).shuffle(order)
    predictor, tries, found = ToolPredictor(), Tries(), []
    for run in order:
        history: list[str] = []
        for actual in [*(step.tool for step in run.steps), END]:
            guess = predictor.predict(run.domain, history)
            if guess is not None:
                last, before = (["", "", *history])[:-3:-1]
                near = f"{run.domain}/{last}"
                paths = (ROOT, run.domain, near, f"{near}/{before}")
                confidence = guess.confidence
                if evidence:
                    confidence = tries.with_evidence(predictor, run.domain, history, guess)
                outcome = Outcome(confidence, guess.tool == actual, gain=1 - r, cost=r)
                found.append(JudgedOutcome(paths, outcome))
            predictor.learn(run.domain, history, actual)
            tries.learn(run.domain, history)
            history.append(actual)
    return found


class Tries:
    """How often the last tools of a run have been seen before, as far as they have."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, ...]] = Counter()

    def learn(self, domain: str, history: Sequence[str]) -> None:
        """Count what a call followed."""
        self._seen.update(self._contexts(domain, history))

    def with_evidence(
        self, predictor: ToolPredictor, domain: str, history: Sequence[str], guess: PredictedTool
    ) -> float:
        """Return a guess's confidence with what stands behind it, before it is learned from."""
        seen = [self._seen[each] for each in self._contexts(domain, history)]
        deepest = max(order for order, count in enumerate(seen) if count)
        lower = predictor.probabilities(domain, history, max(0, deepest - 1))[guess.tool]
        return with_evidence(guess.confidence, lower, seen[deepest])

    @staticmethod
    def _contexts(domain: str, history: Sequence[str]) -> list[tuple[str, ...]]:
        before, last = ("", "", *history)[-2:]
        return [(domain,), (domain, last), (domain, before, last)]


def with_evidence(confidence: float, lower: float, tries: int) -> float:
    """Return a confidence from `tries` observations, moved towards the next shorter context's.

    As one more observation with the distribution of the shorter context:
    (tries * confidence + lower) / (tries + 1).
    """
    return (tries * confidence + lower) / (tries + 1)


def airline_of_tau_bench(runs: Sequence[TraceRun]) -> list[TraceRun]:
    """Return the runs of the smallest, hardest part."""
    return [run for run in runs if run.source == "tau-bench" and run.domain == "airline"]


def hindsight(judged: Sequence[JudgedOutcome]) -> float:
    """Return what the best fixed threshold per (domain, previous tool) earns."""
    contexts: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in judged:
        contexts[each.paths[2]].append((each.outcome.confidence, worth(each)))
    return fsum(map(best_fixed, contexts.values()))
