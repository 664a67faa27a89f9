"""Replays what requests of agents get: the search, the tenant's policy, and its abstention.

The other methods of an evaluation are asked after the first call of a run. A request is made before
it, with the query alone. Its evidence is judged on the same rest of the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memory.cases.case import UNKNOWN_REWARD, Case, call_key
from memory.cases.sequences import MOST_CALLS, pairwise_similarities
from memory.evaluation.columns import Column, leaves_first_call, leaves_task
from memory.evaluation.prequential import JudgedRun, Judgement, judgement
from memory.ranking.asked import CASES
from memory.ranking.case_window import FinishedCase
from memory.ranking.policy import CasePolicy, RankedPool
from memory.ranking.policy_learning import AskedPool, PolicyLearner, after_tool
from memory.ranking.standing import Standing
from memory.ranking.stored_policy import NO_VERSION, StoredPolicy, runs_of_next


class JudgedRequest(NamedTuple):
    """A run's case by its key, and how right its evidence was; None: nothing was shown."""

    key: str
    judged: Judgement | None


class _TrainedVersions:
    """Learns finished runs and stores versions as the memory worker does."""

    def __init__(self) -> None:
        self.learner = PolicyLearner(CasePolicy(), Standing())
        self.stored = NO_VERSION
        self._learned = 0
        self._due = runs_of_next(0)

    def learn(self, case: FinishedCase, asked: AskedPool | None) -> None:
        self.learner.learn(case, asked)
        self._learned += 1
        if self._learned == self._due:
            policy, standing = deepcopy((self.learner.policy, self.learner.standing))
            active = policy if standing.beats_similarity else None
            self.stored = StoredPolicy(self.stored.version + 1, active, standing)
            self._due += runs_of_next(self._learned)


class _LeftOut:
    """The ids of cases by task and by first call, for the columns that leave some out."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._ids: dict[object, list[int]] = defaultdict(list)

    def of(self, case: Case) -> list[int]:
        return [id for key in self._keys(case) for id in self._ids[key]]

    def add(self, case: Case, id: int) -> None:
        for key in self._keys(case):
            self._ids[key].append(id)

    def _keys(self, case: Case) -> Iterator[object]:
        if leaves_task(self._column) and case.task:
            yield "task", case.task
        if leaves_first_call(self._column):
            yield "call", call_key(case.calls[0])


def judged_requests(
    cases: Sequence[Case],
    vectors: npt.NDArray[np.float32],
    *,
    column: Column = "all",
    reached: Callable[[], None] = lambda: None,
) -> Iterator[JudgedRequest]:
    """Yield each run of a tenant, of all kinds in their order, with what a request for it got.

    `vectors`: of the queries. A run without a query is neither asked for nor learned. A run counts
    as ended where the next one begins, and is learned at once.
    """
    versions, left_out, now = _TrainedVersions(), _LeftOut(column), 0
    for id, (case, vector) in enumerate(zip(cases, vectors, strict=True)):
        found = None
        if case.query:
            now = max(now, case.at or 0)
            finished = _finished(case, id, now, vector)
            asked = versions.learner.ask(finished, left_out.of(case))
            if asked is not None and versions.stored.helps(case.kind):
                found = _judged(asked, versions.stored.ranked(asked.pool), case)
            versions.learn(finished, asked)
            left_out.add(case, id)
        yield JudgedRequest(case.key, found)
        reached()


def with_requests(
    runs: Sequence[JudgedRun], requests: Sequence[JudgedRequest], name: str, without: str
) -> list[JudgedRun]:
    """Return runs with how right requests were, as a method.

    `without`: the method that stands for a request which got nothing.
    """
    by_key = {each.key: each.judged for each in requests}
    return [
        run._replace(
            by_method={**run.by_method, name: by_key.get(run.key) or run.by_method[without]}
        )
        for run in runs
    ]


def _finished(case: Case, id: int, now: int, vector: npt.NDArray[np.float32]) -> FinishedCase:
    reward = UNKNOWN_REWARD if case.reward is None else case.reward
    tools = case.tools[: MOST_CALLS + 1]
    return FinishedCase(id, case.kind, case.writer, case.query, tools, reward, now, now, vector)


def _judged(asked: AskedPool, ranked: RankedPool, case: Case) -> Judgement:
    """Return how right the cases are that voted, read after the run's first call."""
    ranked = after_tool(ranked, asked.cases, case.calls[0].tool)
    likeliest, course = asked.foreseen(ranked)
    actual = case.rest[:MOST_CALLS]
    behind = [asked.cases[row] for row in ranked.rows[:CASES]]
    return judgement(
        course,
        actual,
        float(pairwise_similarities([course, actual])[0, 1]),
        exact=likeliest == actual,
        behind=[(each.tools[1:] == actual, each.reward) for each in behind],
    )
