"""Evaluates the memory on a file of runs, in several processes.

A job is one column (which cases count) of one kind: the methods, or the evidence
for confidence. Results do not depend on how many processes there are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from memory.cases.case import Case
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.evaluation.columns import COLUMNS, Column
from memory.evaluation.confidence import judged_guesses
from memory.evaluation.figures import evidence_figures, method_figures
from memory.evaluation.poisoning import QUESTIONS, attacked_questions, poisoning_figures
from memory.evaluation.prequential import by_time, judged_runs, query_of
from replay.evaluation.pool import JobPool, cores
from replay.evaluation.runs_file import read_recorded_runs
from replay.memories.run_cases import cases_of

_WEIGHTS: Final = {"methods": 10, "evidence": 1, "poisoning": 6}
"""How long a run takes with each, about."""

_LOADED: dict[str, Any] = {}


class MemoryProgress(NamedTuple):
    """How far an evaluation is; `predictions`: runs; `seconds` since it began."""

    share: float
    predictions: int
    seconds: float


class _Job(NamedTuple):
    what: str
    column: Column
    kind: str


def evaluate(
    file: Path,
    cases: Sequence[Case],
    say: Callable[[MemoryProgress], None],
    processes: int | None = None,
) -> dict[str, Any]:
    """Return the figures: each of `COLUMNS` by method, and `evidence` with them.

    `file`: of `local_file`, which the processes read; `cases`: those of its runs.
    """
    by_kind = _by_kind(cases)
    jobs = _jobs(by_kind)
    total = sum(len(by_kind[job.kind]) * _WEIGHTS[job.what] for job in jobs)
    counter = get_context("spawn").Value("q")
    found: dict[tuple[str, str], list[Any]] = {(what, c): [] for what in _WEIGHTS for c in COLUMNS}
    parts: dict[int, list[Any]] = {}
    with (
        JobPool(min(processes or cores(), len(jobs)), _load, (file, counter)) as pool,
        _Reporting(counter, total, len(cases), say),
    ):
        parts.update(pool.run(_work, jobs))
    for place, job in enumerate(jobs):
        found[job.what, job.column].extend(parts[place])
    return {
        **{column: method_figures(found["methods", column]) for column in COLUMNS},
        "with_cases": {
            column: sum(run.has_case for run in found["methods", column]) for column in COLUMNS
        },
        "evidence": {column: evidence_figures(found["evidence", column]) for column in COLUMNS},
        "poisoning": poisoning_figures(found["poisoning", "all"]),
    }


def _jobs(by_kind: Mapping[str, Sequence[Case]]) -> list[_Job]:
    """Return the jobs, the longest first."""
    jobs = [
        _Job(what, column, kind)
        for what in _WEIGHTS
        for kind in by_kind
        for column in COLUMNS
        if what != "poisoning" or column == "all"
    ]
    return sorted(jobs, key=lambda job: -len(by_kind[job.kind]) * _WEIGHTS[job.what])


class _Reporting:
    """Says how far all processes are, once a second, in a thread. A context manager."""

    def __init__(
        self, counter: Any, total: int, runs: int, say: Callable[[MemoryProgress], None]
    ) -> None:
        self._counter, self._total, self._runs, self._say = counter, total, runs, say
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._began = time.monotonic()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _report(self) -> None:
        while not self._ended.wait(1.0):
            share = self._counter.value / self._total
            seconds = time.monotonic() - self._began
            self._say(MemoryProgress(share, int(share * self._runs), seconds))


def _load(file: Path, counter: Any) -> None:
    """Read the runs in the process that will ask for them."""
    _LOADED["cases"] = _by_kind(cases_of(read_recorded_runs(file).runs))
    _LOADED["counter"] = counter


def _work(job: _Job) -> list[Any]:
    by_kind: dict[str, list[Case]] = _LOADED["cases"]
    cases = by_time(by_kind[job.kind])
    counter, weight = _LOADED["counter"], _WEIGHTS[job.what]

    def reached() -> None:
        with counter.get_lock():
            counter.value += weight

    if job.what == "evidence":
        return list(judged_guesses(cases, column=job.column, reached=reached))
    vectors = WordLlamaEmbedder().embed([query_of(case) for case in cases])
    if job.what == "poisoning":
        share = len(cases) / sum(map(len, by_kind.values()))
        count = min(len(cases) // 2, ceil(QUESTIONS * share))
        return list(attacked_questions(cases, vectors, questions=count, reached=reached))
    return list(judged_runs(cases, vectors, column=job.column, reached=reached))


def _by_kind(cases: Sequence[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.kind, []).append(case)
    return found
