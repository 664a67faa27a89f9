"""Evaluates the memory of each tenant on its runs, in several processes.

A job is one column (which cases count) of one kind of one tenant: the methods, the evidence for
confidence, or poisoned cases; for what requests get it is one of all kinds, whose policy is one.
Results do not depend on how many processes there are.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from multiprocessing import get_context
from typing import Any, Final, NamedTuple, Protocol

from memory.cases.case import Case
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.evaluation.columns import COLUMNS, Column
from memory.evaluation.confidence import judged_guesses
from memory.evaluation.figures import evidence_figures, method_figures
from memory.evaluation.methods import REFERENCE, REQUESTS
from memory.evaluation.poisoning import QUESTIONS, attacked_questions, poisoning_figures
from memory.evaluation.prequential import by_time, judged_runs, query_of
from memory.evaluation.requests import judged_requests, with_requests
from replay.evaluation.pool import JobPool, cores
from replay.memories.progress import MemoryProgress

_WEIGHTS: Final = {"methods": 10, "requests": 8, "evidence": 1, "poisoning": 6}
"""How long a run takes with each, about."""
_EVERY_KIND: Final = ""
"""In place of a kind: a job of all runs of a tenant."""

_LOADED: dict[str, Any] = {}


class CaseSource(Protocol):
    """Cases by tenant; it is sent to the processes, which read from it."""

    def cases(self, tenant: str) -> list[Case]:
        """Return the cases of a tenant."""
        ...


class _Job(NamedTuple):
    tenant: str
    what: str
    column: Column
    kind: str


Sizes = Mapping[str, Mapping[str, int]]
"""How many cases a tenant has of each kind."""


def sizes_of(cases: Sequence[Case]) -> dict[str, int]:
    """Return how many cases there are of each kind."""
    return dict(Counter(case.kind for case in cases))


def evaluate(
    source: CaseSource,
    sizes: Sizes,
    say: Callable[[MemoryProgress], None],
    processes: int | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (tenant, figures): each of `COLUMNS` by method, `evidence`, `poisoning`.

    Each tenant is evaluated alone; what was judged of it is held until its figures are made.
    """
    jobs = _jobs(sizes)
    if not jobs:
        return
    waiting = Counter(job.tenant for job in jobs)
    parts: dict[_Job, list[Any]] = {}
    total = sum(_effort(sizes, job) for job in jobs)
    runs = sum(sum(kinds.values()) for kinds in sizes.values())
    counter = get_context("spawn").Value("q")
    with (
        JobPool(min(processes or cores(), len(jobs)), _load, (source, counter)) as pool,
        _Reporting(counter, total, runs, say),
    ):
        for place, result in pool.run(_work, jobs):
            job = jobs[place]
            parts[job] = result
            waiting[job.tenant] -= 1
            if not waiting[job.tenant]:
                own = [each for each in jobs if each.tenant == job.tenant]
                yield job.tenant, _figures({each: parts.pop(each) for each in own})


def _figures(parts: Mapping[_Job, Sequence[Any]]) -> dict[str, Any]:
    found: dict[tuple[str, str], list[Any]] = {(what, c): [] for what in _WEIGHTS for c in COLUMNS}
    for job, part in parts.items():
        found[job.what, job.column].extend(part)
    judged = {
        column: with_requests(
            found["methods", column], found["requests", column], REQUESTS, REFERENCE
        )
        for column in COLUMNS
    }
    return {
        **{column: method_figures(judged[column]) for column in COLUMNS},
        "with_cases": {column: sum(run.has_case for run in judged[column]) for column in COLUMNS},
        "answered_requests": {
            column: sum(each.judged is not None for each in found["requests", column])
            for column in COLUMNS
        },
        "evidence": {column: evidence_figures(found["evidence", column]) for column in COLUMNS},
        "poisoning": poisoning_figures(found["poisoning", "all"]),
    }


def _jobs(sizes: Sizes) -> list[_Job]:
    """Return the jobs by tenant, of each the longest first."""
    jobs = [
        _Job(tenant, what, column, kind)
        for tenant, kinds in sizes.items()
        for what in _WEIGHTS
        for kind in ((_EVERY_KIND,) if what == "requests" else kinds)
        for column in COLUMNS
        if what != "poisoning" or column == "all"
    ]
    order = {tenant: place for place, tenant in enumerate(sizes)}
    return sorted(
        jobs,
        key=lambda job: (order[job.tenant], -_effort(sizes, job)),
    )


def _effort(sizes: Sizes, job: _Job) -> int:
    """Return how long a job takes, about."""
    kinds = sizes[job.tenant]
    runs = sum(kinds.values()) if job.what == "requests" else kinds[job.kind]
    return runs * _WEIGHTS[job.what]


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


def _load(source: CaseSource, counter: Any) -> None:
    """Prepare a process; the cases are read with the first job of their tenant."""
    _LOADED.clear()
    _LOADED.update(source=source, counter=counter)


def _cases_of(tenant: str) -> list[Case]:
    """Return the cases of a tenant; those of one tenant are kept."""
    if _LOADED.get("tenant") != tenant:
        _LOADED.pop("cases", None)
        _LOADED.update(cases=_LOADED["source"].cases(tenant), tenant=tenant)
    found: list[Case] = _LOADED["cases"]
    return found


def _work(job: _Job) -> list[Any]:
    of_tenant = _cases_of(job.tenant)
    every = job.what == "requests"
    cases = by_time([case for case in of_tenant if every or case.kind == job.kind])
    counter, weight = _LOADED["counter"], _WEIGHTS[job.what]

    def reached() -> None:
        with counter.get_lock():
            counter.value += weight

    if job.what == "evidence":
        return list(judged_guesses(cases, column=job.column, reached=reached))
    vectors = WordLlamaEmbedder().embed([query_of(case) for case in cases])
    if job.what == "requests":
        return list(judged_requests(cases, vectors, column=job.column, reached=reached))
    if job.what == "poisoning":
        share = len(cases) / len(of_tenant)
        count = min(len(cases) // 2, ceil(QUESTIONS * share))
        return list(attacked_questions(cases, vectors, questions=count, reached=reached))
    return list(judged_runs(cases, vectors, column=job.column, reached=reached))
