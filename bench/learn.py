"""Every policy over simulated worlds and real traces: its payoff as a share of an oracle's.

The oracle knows the true probabilities. Shares are of expected payoffs, to exclude the luck of the
draw. On real traces, whose true probabilities are unknown, the share is of the best fixed threshold
per (domain, previous tool) in hindsight.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import perf_counter_ns
from typing import Any

from bench.support.learner_goals import goals
from bench.support.measuring import echo
from bench.support.trace_share import airline_of_tau_bench, hindsight, predictions
from bench.support.worlds import LENGTH, WORLDS, BenchWorld, WorldEvent, abrupt_drift
from demo.traces import read_runs
from learners.outcome import Outcome
from learners.policy import Policy, State, spec
from learners.registry import DEFAULT, POLICIES, policy
from replay.engine.reference import ReferenceReplay, started
from replay.predictions.outcomes_file import JudgedOutcome
from replay.predictions.utility import worth

SEEDS = 20
FIRST_SEED = 1000
FEW = 50
"""Events below which a leaf of the sparse world counts as rare."""


def run(
    policies: Sequence[str] = (),
    seeds: int = SEEDS,
    traces: Path | None = None,
    *,
    first_seed: int = FIRST_SEED,
    worlds: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the figures of every policy, by name, and which goals they meet.

    `first_seed`: of the worlds; orders of the traces begin as far from 0. `worlds`: all, if none.
    Raises `LookupError` where there is no such policy or world.
    """
    chosen = {name: WORLDS[name] for name in worlds or WORLDS}
    drawn = range(first_seed, first_seed + seeds)
    orders = range(first_seed - FIRST_SEED, first_seed - FIRST_SEED + seeds)
    runs = list(read_runs(traces)) if traces else []
    found = {}
    for name in policies or POLICIES:
        learner = policy(name)
        echo(name)
        figures = in_worlds(learner, drawn, chosen)
        if runs:
            figures |= on_traces(learner, runs, orders)
        found[name] = {**figures, **speed(learner)}
    named = {spec(policy(name)): figures for name, figures in found.items()}
    met = [goal._asdict() for goal in goals(named)]
    seen = {"default": DEFAULT, "seeds": seeds, "first_seed": first_seed}
    return {**seen, "policies": found, "goals": met}


def in_worlds(
    learner: Policy, seeds: Iterable[int], worlds: Mapping[str, BenchWorld] = WORLDS
) -> dict[str, Any]:
    """Return mean share and worst seed of every world, and the figures of issue 6."""
    figures: dict[str, Any] = {}
    for name, world in worlds.items():
        shares, special = [], []
        for seed in seeds:
            events = world.generate(seed)
            decided = decide(learner, world, events)
            shares.append(share(events[world.warm :], decided[world.warm :]))
            if name in SPECIAL:
                special.append(SPECIAL[name][1](events, decided))
        figures[name] = round(fmean(shares), 4)
        figures[f"{name}, worst"] = round(min(shares), 4)
        if special:
            figures[SPECIAL[name][0]] = round(fmean(special), 4)
    if learner.name == "hops_target":
        figures["within .05 of the target"] = round(fmean(map(_on_target(learner), seeds)), 4)
    return figures


def decide(learner: Policy, world: BenchWorld, events: Sequence[WorldEvent]) -> list[bool]:
    """Return which predictions a policy speculates on."""
    return list(started(ReferenceReplay(learner), [event.judged for event in events], world.delay))


def share(events: Sequence[WorldEvent], decided: Sequence[bool]) -> float:
    """Return expected earnings as a share of the oracle's."""
    earned = sum(event.worth for event, yes in zip(events, decided, strict=True) if yes)
    return earned / sum(max(0.0, event.worth) for event in events)


def recovered(events: Sequence[WorldEvent], decided: Sequence[bool]) -> float:
    """Return the share from 500 outcomes after the drift on, over the share before the drift."""
    drift = LENGTH // 2
    before = share(events[200:drift], decided[200:drift])
    return share(events[drift + 500 :], decided[drift + 500 :]) / before


def rare(events: Sequence[WorldEvent], decided: Sequence[bool]) -> float:
    """Return the share within leaves of under `FEW` predictions."""
    counts = Counter(event.judged.paths[-1] for event in events)
    pairs = zip(events, decided, strict=True)
    few = [(event, yes) for event, yes in pairs if counts[event.judged.paths[-1]] < FEW]
    return share([event for event, _ in few], [yes for _, yes in few])


Special = Callable[[Sequence[WorldEvent], Sequence[bool]], float]
SPECIAL: dict[str, tuple[str, Special]] = {
    "abrupt drift": ("recovered 500 after drift", recovered),
    "sparse": ("sparse, rare leaves", rare),
}


def _on_target(learner: Any) -> Callable[[int], float]:
    def measure(seed: int) -> float:
        """Return how often the last 200 speculations are within .05 of the target, under drift."""
        events = abrupt_drift(seed)
        last: deque[bool] = deque(maxlen=200)
        looks = []
        for event, yes in zip(
            events, decide(learner, BenchWorld(abrupt_drift), events), strict=True
        ):
            if yes:
                last.append(event.judged.outcome.correct)
                if len(last) == 200:
                    looks.append(abs(fmean(last) - learner.target) <= 0.05)
        return fmean(looks) if looks else 0.0

    return measure


def on_traces(learner: Policy, runs: Sequence[Any], orders: Iterable[int]) -> dict[str, float]:
    """Return mean share over orders of the runs: all of them, and airline of tau-bench only.

    Once as the predictor returns them, once with the evidence in its confidences; the share is of
    the same hindsight.
    """
    figures = {}
    for name, some in (("traces", list(runs)), ("airline", airline_of_tau_bench(runs))):
        for r in (0.5, 0.7):
            plain = [predictions(some, seed, r) for seed in orders]
            best = list(map(hindsight, plain))
            better = [predictions(some, seed, r, evidence=True) for seed in orders]
            for kind, streams in (("", plain), (", evidence", better)):
                earned = [_earned(learner, judged) for judged in streams]
                shares = [one / most for one, most in zip(earned, best, strict=True)]
                figures[f"{name}{kind}, r {r}"] = round(fmean(shares), 4)
                figures[f"{name}{kind}, r {r}, worst"] = round(min(shares), 4)
    return figures


def _earned(learner: Policy, judged: Sequence[JudgedOutcome]) -> float:
    decided = started(ReferenceReplay(learner), judged)
    return sum(worth(each) for each, yes in zip(judged, decided, strict=True) if yes)


def speed(learner: Policy, rounds: int = 400, count: int = 100) -> dict[str, float]:
    """Return microseconds of one outcome through four levels, and of one threshold: best round.

    A busy machine slows all of them, so each round also times a fixed loop (`_yardstick`). The
    ratio of the two is what may be compared between machines. Rounds are shorter than a turn on a
    core, so that the best of them was not interrupted.
    """
    chain: Sequence[State] = [learner.initial()]
    while len(chain) < 4:
        chain = [*chain, learner.begin(chain[-1])]
    stream = [Outcome(0.75 + n % 25 / 100, n % 5 > 0, gain=400, cost=600) for n in range(count)]
    updates, thresholds, yardsticks = [], [], []
    for _ in range(rounds):
        begun = perf_counter_ns()
        for outcome in stream:
            chain = learner.learn(chain, outcome)
        learned = perf_counter_ns()
        for _ in stream:
            learner.threshold(chain[-1], 400.0, 600.0)
        ended = perf_counter_ns()
        _yardstick(count)
        yardsticks.append(perf_counter_ns() - ended)
        thresholds.append(ended - learned)
        updates.append(learned - begun)
    return {
        "us per update of 4 levels": round(min(updates) / count / 1000, 2),
        "us per threshold": round(min(thresholds) / count / 1000, 2),
        "us of the yardstick": round(min(yardsticks) / count / 1000, 2),
        "both, in yardsticks": round((min(updates) + min(thresholds)) / min(yardsticks), 2),
    }


def _yardstick(count: int) -> float:
    """Do ten additions, multiplications and comparisons of floats, `count` times."""
    total, factor = 0.0, 1.0
    for _ in range(count):
        for _ in range(10):
            total = total + factor if total < 5.0 else total - 4.0
            factor = factor * 0.5 + 1.0
    return total
