"""Real agent runs as judged predictions.

Runs in shuffled order, one pass; the next tool is guessed by the demo's back-off predictor, which
learns online per domain; guesses that a run ends are left out. Contexts: default, domain, +
previous tool, + the one before. Gain 1 - r, cost r.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import fsum
from random import Random

from demo.predictor import Predictor
from demo.traces import END, AgentRun
from learners.outcome import Outcome
from replay.predictions.outcomes_file import ROOT, JudgedOutcome
from replay.predictions.utility import best_fixed, worth


def predictions(runs: Sequence[AgentRun], seed: int, r: float) -> list[JudgedOutcome]:
    """Return the judged predictions of one order of the runs."""
    order = list(runs)
    Random(seed).shuffle(order)
    predictor, found = Predictor(), []
    for run in order:
        history: list[str] = []
        for actual in [*(step.tool for step in run.steps), END]:
            guess = predictor.predict(run.domain, history)
            if guess is not None:
                last, before = (["", "", *history])[:-3:-1]
                near = f"{run.domain}/{last}"
                paths = (ROOT, run.domain, near, f"{near}/{before}")
                right = guess.tool == actual
                outcome = Outcome(guess.confidence, right, gain=1 - r, cost=r)
                found.append(JudgedOutcome(paths, outcome))
            predictor.learn(run.domain, history, actual)
            history.append(actual)
    return found


def airline_of_tau_bench(runs: Sequence[AgentRun]) -> list[AgentRun]:
    """Return the runs of the smallest, hardest part."""
    return [run for run in runs if run.source == "tau-bench" and run.domain == "airline"]


def hindsight(judged: Sequence[JudgedOutcome]) -> float:
    """Return what the best fixed threshold per (domain, previous tool) earns."""
    contexts: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in judged:
        contexts[each.paths[2]].append((each.outcome.confidence, worth(each)))
    return fsum(map(best_fixed, contexts.values()))
