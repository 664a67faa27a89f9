"""A block of predictions in order, and grouped by the contexts that learn from them.

Contexts of most policies learn independently, so a runner may take one context of a block after
the other, if it answers as of each question. What does not depend on the policy is computed here,
once for all runners.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain as chained
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

from learners.outcome import Outcome, Run

Item = TypeVar("Item")
Chain = tuple[int, ...]
"""The contexts of a prediction, coarse to fine, as numbers of a `ContextRegistry`. A context has
one chain: its last number determines the others."""
Step = tuple[Chain, Outcome | None, int]
"""A prediction that is asked about (no outcome yet, its number), or one that is judged (-1 where it
was asked about in the same moment)."""


class FirstOutcome(NamedTuple):
    """A context's first outcome: the place of the prediction, and the context above (-1: none)."""

    place: int
    parent: int
    context: int


class Question(NamedTuple):
    """A prediction asked about before it is judged. `place`: of the next judged one; `context`: the
    finest known then."""

    number: int
    place: int
    context: int


class Group(NamedTuple):
    """The outcomes that one context of a block learns from, in order.

    `answers`: it is the finest of some; `alone`: all of it is of one chain, whose contexts from
    here on have the very same `run`; `depth`: 0 for the coarsest.
    """

    context: int
    places: Sequence[int]
    run: Run
    answers: bool
    alone: bool
    depth: int


class TimeSpan(NamedTuple):
    """A time span: the place after its last prediction, the event time (Unix ms) of its first;
    `halves`: with it each two spans so far are merged."""

    end: int
    at: int
    halves: bool


@dataclass
class Block:
    """Steps in order, and the judged ones as columns.

    `nth`: how many predictions its context had, this one included; `group`: of its workflow;
    `worth`: what starting it earned; `known`: the gain and cost that a decision on it could know.
    The two are those of the outcomes, where they are not given. `unsure`: the places of those whose
    worth is estimated, or not known.
    """

    steps: Sequence[Step] = ()
    contexts: int = 0
    births: Sequence[FirstOutcome] = ()
    questions: Sequence[Question] = ()
    group: list[int] = field(default_factory=list)
    nth: list[int] = field(default_factory=list)
    stretches: Sequence[TimeSpan] = ()
    worth: list[float] = field(default_factory=list)
    known: list[tuple[float, float]] = field(default_factory=list)
    unsure: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        judged = self.steps
        if self.questions:
            judged = [step for step in judged if step[1] is not None]
        chains, outcomes, asked = zip(*judged, strict=True) if judged else ((), (), ())
        self.chains: Sequence[Chain] = chains
        self.outcomes: Sequence[Outcome] = outcomes
        self.late = (
            [(place, number) for place, number in enumerate(asked) if number >= 0]
            if max(asked, default=-1) >= 0
            else []
        )
        self.leaf = [chain[-1] for chain in chains]
        self.confidence = [each.confidence for each in outcomes]
        self.correct = [each.correct for each in outcomes]
        if not self.worth:
            self.worth = [each.gain if each.correct else -each.cost for each in outcomes]
            self.known = [(each.gain, each.cost) for each in outcomes]
        self.not_startable = [n for n, each in enumerate(outcomes) if each.not_startable]
        """The places of guesses that no policy could have started: learned from, not credited."""

    def at(self, place: int) -> int:
        """Return the event time (Unix ms) at which the time span of a prediction begins."""
        return self.stretches[bisect_right(self.stretches, place, key=attrgetter("end"))].at

    def __len__(self) -> int:
        return len(self.leaf)

    @cached_property
    def startable(self) -> Sequence[bool]:
        """Whether each guess could have been started, had a policy wanted it."""
        return [not each.not_startable for each in self.outcomes]

    @cached_property
    def rows(self) -> Sequence[tuple[int, bool, float, int]]:
        """Finest context, outcome, worth and group of each prediction."""
        return list(zip(self.leaf, self.correct, self.worth, self.group, strict=True))

    @cached_property
    def places(self) -> dict[int, Sequence[int]]:
        """The places of each finest context, in order."""
        found: dict[int, list[int]] = {}
        for place, leaf in enumerate(self.leaf):
            if leaf in found:
                found[leaf].append(place)
            else:
                found[leaf] = [place]
        return {leaf: _shortest(places) for leaf, places in found.items()}

    @cached_property
    def groups(self) -> Sequence[Group]:
        """The contexts that learn, coarse before fine, with their outcomes."""
        depths: list[dict[int, list[Sequence[int]]]] = []
        for places in self.places.values():
            chain = self.chains[places[0]]
            while len(depths) < len(chain):
                depths.append({})
            for found, context in zip(depths, chain, strict=False):
                found.setdefault(context, []).append(places)
        return [
            self._group(context, each, depth)
            for depth, found in enumerate(depths)
            for context, each in found.items()
        ]

    def _group(self, context: int, each: Sequence[Sequence[int]], depth: int) -> Group:
        answers = context in self.places
        if len(each) == 1:
            leaf = self.leaf[each[0][0]]
            return Group(context, each[0], self.runs[leaf], answers, True, depth)
        if sum(map(len, each)) == len(self):
            run = Run(self.outcomes, self.confidence, self.correct)
            return Group(context, range(len(self)), run, answers, False, depth)
        places = sorted(chained.from_iterable(each))
        return Group(context, places, self._run(places), answers, False, depth)

    @cached_property
    def runs(self) -> dict[int, Run]:
        """The outcomes of each finest context."""
        return {leaf: self._run(places) for leaf, places in self.places.items()}

    @cached_property
    def worths(self) -> dict[int, Sequence[float]]:
        """What speculating was worth, by finest context."""
        return {leaf: _picked(self.worth, places) for leaf, places in self.places.items()}

    def _run(self, places: Sequence[int]) -> Run:
        return Run(
            _picked(self.outcomes, places),
            _picked(self.confidence, places),
            _picked(self.correct, places),
        )

    def watched(self) -> Iterator[tuple[int, Sequence[int], Run]]:
        """Yield each workflow type (the coarsest level where there is none), places and run."""
        for group in self.groups:
            if group.depth == 1:
                yield group.context, group.places, group.run
        for leaf, places in self.places.items():
            if len(self.chains[places[0]]) == 1:
                yield leaf, places, self.runs[leaf]

    @cached_property
    def births_below(self) -> dict[int, list[FirstOutcome]]:
        """The births by the context above; of the coarsest level under -1."""
        below: dict[int, list[FirstOutcome]] = {}
        for birth in self.births:
            below.setdefault(birth.parent, []).append(birth)
        return below

    @cached_property
    def questioned(self) -> frozenset[int]:
        """The contexts of questions."""
        return frozenset(question.context for question in self.questions)


def _shortest(places: list[int]) -> Sequence[int]:
    """Return places as a range where they are contiguous: slicing is faster than gathering."""
    first, end = places[0], places[-1] + 1
    return range(first, end) if end - first == len(places) else places


def _picked(column: Sequence[Item], places: Sequence[int]) -> Sequence[Item]:
    if isinstance(places, range):
        return column if len(places) == len(column) else column[places.start : places.stop]
    found: Sequence[Item] = itemgetter(*places)(column)  # more than one, or there is no hole
    return found
