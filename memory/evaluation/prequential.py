"""Asks each method for every run before it is learned, in the order of time (Dawid 1984)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memory.cases.case import Case, call_key
from memory.evaluation.columns import Column, leaves_first_call, leaves_task
from memory.evaluation.methods import new_methods
from memory.ranking.asked import AskedBank, FinishedRun, Retrieved
from memory.ranking.bank import CaseBank, CaseQuestion

END = ""
"""Stands for the next tool where a run ends."""


class Judgement(NamedTuple):
    """How right an answer was; `success`: the share of success expected, None if unknown."""

    exact: bool
    next: bool
    edit: float
    set_f1: float
    hit: bool
    success: float | None


class JudgedRun(NamedTuple):
    """One run, and how right each method was.

    `key`: of its case; `cluster`: its task, or itself; `has_case`: whether an earlier run counted
    as a case.
    """

    key: str
    cluster: str
    reward: float | None
    by_method: dict[str, Judgement]
    has_case: bool


NO_ANSWER = Judgement(False, False, 0.0, 0.0, False, None)


def by_time(cases: Sequence[Case]) -> list[Case]:
    """Return cases in the order of their times; those without a time keep their places."""
    timed = [place for place, case in enumerate(cases) if case.at is not None]
    found = list(cases)
    for place, case in zip(timed, sorted((cases[p] for p in timed), key=_at), strict=True):
        found[place] = case
    return found


def _at(case: Case) -> int:
    return case.at or 0


def query_of(case: Case) -> str:
    """Return what a case is asked by: its query, else its first call as text."""
    return case.query or call_key(case.calls[0]).decode(errors="replace")


def judged_runs(
    cases: Sequence[Case],
    vectors: npt.NDArray[np.float32],
    *,
    column: Column = "all",
    methods: Iterable[str] | None = None,
    reached: Callable[[], None] = lambda: None,
) -> Iterator[JudgedRun]:
    """Yield each run of one kind with what the methods answered after its first call.

    `cases` in their order, each with a call; `vectors`: of their queries; `column`: which of
    them count; `methods`: names of those that answer, None for all. The first run has no case
    before it and is only learned.
    """
    bank, answering = CaseBank(), new_methods(methods)
    for case, vector in zip(cases, vectors, strict=True):
        asked_by = case._replace(query=query_of(case))
        if len(bank):
            question = CaseQuestion(
                asked_by.query,
                case.calls[0],
                case.writer,
                vector,
                case.task if leaves_task(column) else "",
                leaves_first_call(column),
            )
            asked = AskedBank(bank, question)
            answers = {name: method.answer(asked) for name, method in answering.items()}
            outcome = FinishedRun(bank, bank.table.add(case.rest), case.reward)
            yield JudgedRun(
                case.key,
                case.task or case.key,
                case.reward,
                judged(asked, answers, outcome),
                len(asked.rows) > 0,
            )
            for method in answering.values():
                method.learn(asked, outcome)
        bank.add(asked_by, vector)
        reached()


def judged(
    asked: AskedBank, answers: Mapping[str, Retrieved], outcome: FinishedRun
) -> dict[str, Judgement]:
    """Return how right each answer was."""
    courses = {each.course for each in answers.values() if each.course is not None}
    numbers = np.array(sorted(courses), np.int64)
    alike = dict(zip(numbers.tolist(), outcome.similarities(numbers).tolist(), strict=True))
    return {
        name: NO_ANSWER
        if answer.course is None
        else _judgement(asked, answer, outcome, alike[answer.course])
        for name, answer in answers.items()
    }


def _judgement(asked: AskedBank, answer: Retrieved, outcome: FinishedRun, edit: float) -> Judgement:
    table, rests = asked.bank.table, asked.rests
    behind = [
        (bool(rests[row] == outcome.sequence), float(asked.bank.rewards.values[row]))
        for row in answer.rows
    ]
    return judgement(
        table[answer.course or 0],
        table[outcome.sequence],
        edit,
        exact=answer.likeliest == outcome.sequence,
        behind=behind,
    )


def judgement(
    expected: Sequence[str],
    actual: Sequence[str],
    edit: float,
    *,
    exact: bool,
    behind: Sequence[tuple[bool, float]],
) -> Judgement:
    """Return how right an expected course is.

    `edit`: how alike both are; `exact`: whether the likeliest sequence happened; `behind`: of the
    cases behind the answer whether their tools happened, and their rewards.
    """
    return Judgement(
        exact,
        (expected or (END,))[0] == (actual or (END,))[0],
        edit,
        set_f1(expected, actual),
        any(equal for equal, _ in behind),
        sum(reward for _, reward in behind) / len(behind) if behind else None,
    )


def set_f1(expected: Sequence[str], actual: Sequence[str]) -> float:
    """Return the F1 of the sets of tools; 1 if both are empty."""
    one, other = set(expected), set(actual)
    if not one and not other:
        return 1.0
    return 2 * len(one & other) / (len(one) + len(other))
