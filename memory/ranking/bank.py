"""A bank of cases of one kind, in columns, so that one question looks at all of them at once.

Everything that is summed over is exact (integers, or vectors rounded to 1/4,000 whose products fit
single precision), so the same cases and questions give the same bits on every machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.prediction.interface import ToolCall
from memory.cases.case import UNKNOWN_REWARD, Case, call_key, call_parts, words
from memory.cases.columns import GrowingColumn
from memory.cases.sequences import SequenceTable
from memory.cases.similarities import SimilarityTable
from memory.episodes.hashes import fold
from memory.ranking.lexical import LexicalIndex, PartIndex
from memory.ranking.term_weights import TermWeights
from memory.ranking.typicality import ANY, Typicality

VECTOR_SCALE: Final = 4_000.0
Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


class CaseQuestion(NamedTuple):
    """What is known when cases are asked for: the request and the run's first call.

    `vector`: the query's embedding, None for none; `writer`: of the run, whose own cases are
    trusted; `without_task`: cases of this task do not count, "" for none; `without_first_call`: nor
    do those that begin with an equal call.
    """

    query: str
    first: ToolCall
    writer: str = ""
    vector: npt.NDArray[np.float32] | None = None
    without_task: str = ""
    without_first_call: bool = False


class Matches(NamedTuple):
    """How all cases of a bank compare with a question; one entry a case, in order of addition."""

    rows: Rows
    """The cases that count."""
    cosine: Numbers
    words: Numbers
    telling: Numbers
    """Of words that tell what happens, as log odds ratio; see `TermWeights`."""
    parts: Numbers
    equal_call: npt.NDArray[np.bool_]
    equal_tool: npt.NDArray[np.bool_]
    equal_query: npt.NDArray[np.bool_]
    own: npt.NDArray[np.bool_]


class CaseBank:
    """Cases of one kind, numbered from 0 in the order in which they were added."""

    def __init__(self) -> None:
        self.table = SequenceTable()
        self.alike = SimilarityTable(self.table)
        self._typical = Typicality(self.alike)
        self.cases: list[Case] = []
        self.rests = GrowingColumn(np.int64)
        self.tools = GrowingColumn(np.int64)
        self.calls = GrowingColumn(np.int64)
        self.queries = GrowingColumn(np.int64)
        self.writers = GrowingColumn(np.int64)
        self.tasks = GrowingColumn(np.int64)
        self.rewards = GrowingColumn(np.float64)
        self.lengths = GrowingColumn(np.float64)
        self.helped = GrowingColumn(np.float64)
        self.shown = GrowingColumn(np.float64)
        self.surprise = GrowingColumn(np.float64)
        self._vectors: GrowingColumn | None = None
        self._words = LexicalIndex()
        self._parts = PartIndex()
        self._telling = TermWeights()
        self._numbers: dict[str, dict[Hashable, int]] = defaultdict(dict)
        self._of_task: dict[int, list[int]] = defaultdict(list)
        self._of_call: dict[int, list[int]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self.cases)

    def _number(self, what: str, value: Hashable) -> int:
        known = self._numbers[what]
        return known.setdefault(value, len(known))

    def _known(self, what: str, value: Hashable) -> int:
        return self._numbers[what].get(value, -1)

    def add(self, case: Case, vector: npt.NDArray[np.float32] | None = None) -> int:
        """Add a case with at least one call, and return its number."""
        number, first = len(self.cases), case.calls[0]
        self.cases.append(case)
        rest = self.table.add(case.rest)
        tool = self._number("tool", first.tool)
        self._typical.add(tool, rest)
        self.rests.append(rest)
        self.tools.append(tool)
        call = self._number("call", call_key(first))
        self.calls.append(call)
        self._of_call[call].append(number)
        self.queries.append(self._number("query", fold(case.query)))
        self.writers.append(self._number("writer", case.writer))
        task = self._number("task", case.task or (case.key,))
        self.tasks.append(task)
        self._of_task[task].append(number)
        self.rewards.append(UNKNOWN_REWARD if case.reward is None else case.reward)
        self.lengths.append(len(case.calls))
        self.helped.append(0.0)
        self.shown.append(0.0)
        self._words.add(words(case.query))
        self._compare(words(case.query), rest)
        self._parts.add(call_parts(first))
        self._add_vector(vector)
        return number

    def _compare(self, terms: list[str], rest: int) -> None:
        """Learn which terms tell what happens, and add those of a new case."""
        names, rows = self._telling.partners(terms)
        # Four earlier cases, whatever they share; by large primes, so that all take part in turn.
        count = len(self.cases) - 1
        any_one = [(count * 7919 + place * 104_729) % count for place in range(min(count, 4))]
        others = self.rests.values[np.concatenate([rows, np.array(any_one, np.int64)])]
        alike = self.alike.between(np.array([rest]), others)[0]
        alike = (alike + (others == rest)) / 2
        self._telling.learn(names, alike[: len(rows)])
        for value in alike[len(rows) :]:
            self._telling.learn_any(float(value))
        self._telling.add(terms)

    def _add_vector(self, vector: npt.NDArray[np.float32] | None) -> None:
        if self._vectors is None:
            if vector is None:
                return
            self._vectors = GrowingColumn(np.float32, len(vector))
            for _ in self.cases[:-1]:
                self._vectors.append(0.0)
        self._vectors.append(0.0 if vector is None else exact_vector(vector))

    def left_out(self, question: CaseQuestion) -> Rows:
        """Return the cases that do not count for a question, in ascending order."""
        task = question.without_task
        found = self._of_task.get(self._known("task", task), []) if task else []
        if question.without_first_call:
            equal = self._of_call.get(self._known("call", call_key(question.first)), [])
            found = sorted({*found, *equal})
        return np.array(found, np.int64)

    def matches(self, question: CaseQuestion) -> Matches:
        """Return how all cases compare with a question."""
        there = np.ones(len(self.cases), np.bool_)
        there[self.left_out(question)] = False
        return Matches(
            np.flatnonzero(there),
            self._cosine(question.vector),
            self._words.scores(words(question.query)),
            self._telling.scores(words(question.query)),
            self._parts.scores(call_parts(question.first)),
            self.calls.values == self._known("call", call_key(question.first)),
            self.tools.values == self._known("tool", question.first.tool),
            (self.queries.values == self._known("query", fold(question.query)))
            & bool(question.query),
            (self.writers.values == self._known("writer", question.writer)) & bool(question.writer),
        )

    def _cosine(self, vector: npt.NDArray[np.float32] | None) -> Numbers:
        if vector is None or self._vectors is None:
            return np.zeros(len(self.cases))
        found: Any = self._vectors.values @ exact_vector(vector)
        cosine: Numbers = found.astype(np.float64) / VECTOR_SCALE**2
        return cosine

    @property
    def vectors(self) -> npt.NDArray[np.float32]:
        """The embeddings in units of 1/4,000, shape (cases, dimensions); no column without any."""
        if self._vectors is None:
            return np.zeros((len(self.cases), 0), np.float32)
        return self._vectors.values

    def typical_rests(self, question: CaseQuestion) -> tuple[Rows, Numbers] | None:
        """Return the sequences after the question's tool, with their typicality.

        Those of all cases if none begins with that tool; None if there is no case.
        """
        own = self.left_out(question)
        tool = self._known("tool", question.first.tool)
        rests = self.rests.values[own]
        found = self._typical.scores(tool, rests[self.tools.values[own] == tool])
        return found if found is not None else self._typical.scores(ANY, rests)


def exact_vector(vector: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return a vector in units of 1/4,000, whose products and their sums are exact."""
    found: npt.NDArray[np.float32] = np.rint(np.nan_to_num(vector) * np.float32(VECTOR_SCALE))
    return found
