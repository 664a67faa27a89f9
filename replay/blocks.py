"""A block of predictions in the order in which they came, and by the contexts that learn from them.

Contexts of most policies learn each on its own, so an arm may take one context of a block after the
other, if it answers as of the moment of each question. Not here: who asks (`judge`) and who answers
(`arms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain as chained
from typing import NamedTuple

from learners.outcome import Outcome, Run

Chain = tuple[int, ...]
"""The contexts of a prediction, coarse to fine, as numbers that `judge` gives."""
Step = tuple[Chain, Outcome | None, int]
"""A prediction that is asked about (no outcome yet, its number), or one that is judged (-1 where it
was asked about in the same moment)."""


class Birth(NamedTuple):
    """A context's first outcome: the place of the prediction, and the context above (-1: none)."""

    place: int
    parent: int
    context: int


class Question(NamedTuple):
    """What is asked before it is judged. `place`: of the next judged one; `context`: the finest
    that anything is known of then."""

    number: int
    place: int
    context: int


class Group(NamedTuple):
    """What one context of a block learns from, in order. `answers`: it is the finest of some."""

    context: int
    places: Sequence[int]
    run: Run
    answers: bool


@dataclass
class Block:
    """Steps in order, and the judged ones as columns. `at`: event time in Unix ms of the first.

    `nth`: how many predictions its context had, this one included; `group`: of its workflow.
    """

    steps: Sequence[Step] = ()
    contexts: int = 0
    births: Sequence[Birth] = ()
    questions: Sequence[Question] = ()
    group: list[int] = field(default_factory=list)
    nth: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.questions:
            judged = [step for step in self.steps if step[1] is not None]
        else:
            judged = list(self.steps)
        self.chains: list[Chain] = [step[0] for step in judged]
        self.outcomes = outcomes = [step[1] for step in judged if step[1] is not None]
        self.late = [(place, step[2]) for place, step in enumerate(judged) if step[2] >= 0]
        self.leaf = [chain[-1] for chain in self.chains]
        self.confidence = [each.confidence for each in outcomes]
        self.correct = [each.correct for each in outcomes]
        self.worth = [each.gain if each.correct else -each.cost for each in outcomes]
        self.at = outcomes[0].timestamp if outcomes else 0

    def __len__(self) -> int:
        return len(self.leaf)

    @cached_property
    def groups(self) -> Sequence[Group]:
        """The contexts that learn, coarse before fine, and what from."""
        by_chain: dict[Chain, list[int]] = {}
        for place, chain in enumerate(self.chains):
            if chain in by_chain:
                by_chain[chain].append(place)
            else:
                by_chain[chain] = [place]
        depths: list[dict[int, list[list[int]]]] = []
        for chain, places in by_chain.items():
            while len(depths) < len(chain):
                depths.append({})
            for found, context in zip(depths, chain, strict=False):
                found.setdefault(context, []).append(places)
        leaves = {chain[-1] for chain in by_chain}
        runs: dict[int, Run] = {}
        groups = []
        for found in depths:
            for context, each in found.items():
                places = each[0] if len(each) == 1 else sorted(chained.from_iterable(each))
                run = runs.get(id(places)) if len(each) == 1 else self._run(places)
                if run is None:
                    run = runs[id(places)] = self._run(places)
                groups.append(Group(context, places, run, context in leaves))
        return groups

    def _run(self, places: Sequence[int]) -> Run:
        outcomes, confidence, correct = self.outcomes, self.confidence, self.correct
        if len(places) == len(outcomes):
            return Run(outcomes, confidence, correct)
        return Run(
            [outcomes[each] for each in places],
            [confidence[each] for each in places],
            [correct[each] for each in places],
        )

    @cached_property
    def births_below(self) -> dict[int, list[Birth]]:
        """The births by the context above; of the coarsest level under -1."""
        below: dict[int, list[Birth]] = {}
        for birth in self.births:
            below.setdefault(birth.parent, []).append(birth)
        return below

    @cached_property
    def questioned(self) -> frozenset[int]:
        """The contexts that are asked before the truth is known."""
        return frozenset(question.context for question in self.questions)
