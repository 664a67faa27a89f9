"""Evaluates predictors on a file of runs: by seed and domain, in several processes.

A job is one predictor on the runs of one domain in the order of one seed; then the decisions of all
domains are put together again, predictor by predictor and seed by seed. Not here: reading options,
and what is shown (`results`, `page`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from replay.evaluation.figures import Figures
from replay.evaluation.known_predictors import maker_of
from replay.evaluation.latencies import (
    RECORDED,
    DeclaredLatencies,
    LatencySource,
    RecordedLatencies,
)
from replay.evaluation.pool import JobPool, cores
from replay.evaluation.predictor_fault import PredictorFault
from replay.evaluation.prequential import Judged, judge, shuffled
from replay.evaluation.recorded_run import RecordedRun
from replay.evaluation.runs_file import read_recorded_runs
from replay.evaluation.seed_figures import SeedWork, seed_figures

_JUDGING: Final = 0.85
"""About which share of the time judging takes; the rest are the figures."""


@dataclass(frozen=True)
class EvaluationPlan:
    """What to evaluate. `file`: of `local_file`; `predictors`: see `maker_of`, the first is the one
    that the others are compared with; `latency`: DECLARED or RECORDED; `ratios`: cost / (cost +
    gain); `read_only`: names of tools."""

    file: Path
    predictors: tuple[str, ...]
    seeds: tuple[int, ...]
    latency: str
    ratios: tuple[float, ...]
    read_only: frozenset[str]


class EvaluationProgress(NamedTuple):
    """How far an evaluation is; `seconds` since it began."""

    share: float
    predictions: int
    seconds: float


class _Job(NamedTuple):
    predictor: str
    seed: int
    domain: str


class _Loaded(NamedTuple):
    runs: Sequence[RecordedRun]
    latencies: LatencySource


_LOADED: dict[str, _Loaded] = {}


def evaluate(
    plan: EvaluationPlan,
    runs: Sequence[RecordedRun],
    on_progress: Callable[[EvaluationProgress], None],
    processes: int | None = None,
) -> dict[str, list[Figures]]:
    """Return the figures of each predictor by its name, one entry per seed.

    `runs`: of the plan's file. Raises `LookupError` for an unknown predictor, and `PredictorFault`
    with the run's place among `runs`.
    """
    for name in plan.predictors:
        maker_of(name)
    began = time.monotonic()
    jobs = _jobs(plan, runs)
    sizes = _sizes(runs)
    total = sum(sizes[job.domain] for job in jobs)
    found: dict[tuple[str, int], list[Judged]] = {}
    domains: dict[tuple[str, int], list[str]] = {}
    done = judged = 0
    with JobPool(min(processes or cores(), len(jobs)), _load, (plan.file, plan.latency)) as pool:
        for place, result in pool.run(_judge, jobs):
            job = jobs[place]
            found.setdefault((job.predictor, job.seed), []).append(result)
            domains.setdefault((job.predictor, job.seed), []).append(job.domain)
            done += sizes[job.domain]
            judged += len(result.points)
            on_progress(
                EvaluationProgress(_JUDGING * done / total, judged, time.monotonic() - began)
            )
        works = list(_works(plan, found, domains))
        found.clear()
        figures: dict[str, dict[int, Figures]] = {}
        for count, (place, of_seed) in enumerate(pool.run(seed_figures, works), start=1):
            work = works[place]
            figures.setdefault(work.predictor, {})[work.seed] = of_seed
            share = _JUDGING + (1.0 - _JUDGING) * count / len(works)
            on_progress(EvaluationProgress(share, judged, time.monotonic() - began))
    return {name: [figures[name][seed] for seed in plan.seeds] for name in plan.predictors}


def _jobs(plan: EvaluationPlan, runs: Sequence[RecordedRun]) -> list[_Job]:
    """Return the jobs, by predictor and seed, the largest domains first."""
    sizes = _sizes(runs)
    return sorted(
        (
            _Job(predictor, seed, domain)
            for predictor in plan.predictors
            for seed in plan.seeds
            for domain in sizes
        ),
        key=lambda job: (plan.predictors.index(job.predictor), job.seed, -sizes[job.domain]),
    )


def _sizes(runs: Sequence[RecordedRun]) -> dict[str, int]:
    """Return how much there is to judge by domain."""
    sizes: dict[str, int] = {}
    for run in runs:
        sizes[run.domain] = sizes.get(run.domain, 0) + len(run.steps) + 1
    return sizes


def _works(
    plan: EvaluationPlan,
    found: Mapping[tuple[str, int], Sequence[Judged]],
    domains: Mapping[tuple[str, int], Sequence[str]],
) -> Iterator[SeedWork]:
    for (predictor, seed), parts in found.items():
        points = [point for part in parts for point in part.points]
        points.sort(key=attrgetter("run"))  # stable: decisions of a run stay in order
        costs = {
            domain: part.costs for domain, part in zip(domains[predictor, seed], parts, strict=True)
        }
        yield SeedWork(predictor, seed, points, costs, plan.ratios, plan.read_only)


def _load(file: Path, latency: str) -> None:
    """Read the runs in the process that will judge them."""
    _order.cache_clear()
    _LOADED["runs"] = loaded = _Loaded(read_recorded_runs(file).runs, DeclaredLatencies())
    if latency == RECORDED:
        _LOADED["runs"] = _Loaded(loaded.runs, RecordedLatencies(loaded.runs))


def _judge(job: _Job) -> Judged:
    own, loaded = _order(job.seed)[job.domain], _LOADED["runs"]
    try:
        return judge(maker_of(job.predictor)(), own, loaded.latencies, job.seed)
    except PredictorFault as fault:
        order = shuffled(loaded.runs, job.seed)
        run = None if fault.run is None else order[fault.run]  # its place in the file
        raise PredictorFault(fault.problem, job.predictor, run, fault.decision) from fault


@lru_cache(maxsize=2)
def _order(seed: int) -> dict[str, list[tuple[int, RecordedRun]]]:
    """Return the runs of each domain in the order of a seed, with their places in it."""
    runs = _LOADED["runs"].runs
    found: dict[str, list[tuple[int, RecordedRun]]] = {}
    for place, number in enumerate(shuffled(runs, seed)):
        found.setdefault(runs[number].domain, []).append((place, runs[number]))
    return found
