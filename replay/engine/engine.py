"""The engine: predictions in their order go in, every arm answers and learns, sums come out.

A prediction may be asked about long before its truth is known, as in the log it came: each arm
answers with what it knew when it was asked. Not here: where predictions come from (`histories`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headstart.experiments import GROUPS
from learners.outcome import Outcome
from learners.policy import Policy
from replay.engine.accumulators import PolicyTotals, TimeBuckets
from replay.engine.ground_truth import Drifts, Hindsight, Reliability
from replay.engine.policy_runners import Answers, LiveRunner, PolicyRunner, arm_of
from replay.engine.timeline import Timeline
from replay.predictions.assumptions import Basis
from replay.predictions.blocks import Block, Chain, FirstOutcome, Question, Step, TimeSpan
from replay.predictions.stakes import StakesHistory

LIVE: Final = "live"
"""The name of the arm that did what the executors did."""
MOST_CONTEXTS: Final = 50_000
"""Contexts of one partition that are kept apart; what comes beyond is judged by its parent."""
AT_ONCE: Final = 1024
"""Predictions judged at once: more make no policy faster."""


class Split(NamedTuple):
    """Where sums begin to be kept apart: an event time (Unix ms), or a number of predictions."""

    at: int | None = None
    number: int | None = None


AnswerObserver = Callable[[str, Sequence[str], Answers], None]
"""Is told, for each arm, the finest known path of each prediction of a block, and the answers."""


@dataclass
class SplitSums:
    """The sums of one stretch of the history (there are two where settings are searched)."""

    tallies: dict[str, PolicyTotals]
    course: TimeBuckets = field(default_factory=TimeBuckets)
    hindsight: Hindsight = field(default_factory=Hindsight)
    reliability: Reliability = field(default_factory=Reliability)
    drifts: Drifts = field(default_factory=Drifts)
    counts: list[int] = field(default_factory=list)
    """Of each context, how many predictions were learned from."""
    not_startable: dict[int, int] = field(default_factory=dict)
    """Of each context that has any, how many of them no policy could have started."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Why, and how many."""
    members: list[int] = field(default_factory=lambda: [0] * GROUPS)
    first: int = 0
    last: int = 0


class BacktestEngine:
    """Walks arms over the predictions of one partition.

    `split`: from where on sums are kept apart. `told`: see `AnswerObserver`. `timed`: whether it is
    noted when predictions were judged.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        *,
        live: bool = False,
        suggest: bool = False,
        split: Split | None = None,
        most_contexts: int = MOST_CONTEXTS,
        told: AnswerObserver | None = None,
        timed: bool = False,
    ) -> None:
        self._arms: dict[str, PolicyRunner] = {
            name: arm_of(policy, suggest=suggest) for name, policy in policies.items()
        }
        if live:
            self._arms[LIVE] = LiveRunner()
        self._split, self._most, self._told = split, most_contexts, told
        self.timeline = Timeline() if timed else None
        self.places: list[tuple[str, str]] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._known: list[bool] = []
        self.parts = [self._part()]
        self._steps: list[Step] = []
        self._groups: list[int] = []
        self._stakes = StakesHistory[int]()
        self._worth: list[float] = []
        self._stakes_known: list[tuple[float, float]] = []
        self._births: list[FirstOutcome] = []
        self._questions: list[Question] = []
        self._stretches: list[TimeSpan] = []
        self._begun = self._since = 0
        """Judged predictions, and steps, before the present stretch of the course."""
        self._apart = self._apart_before = 0
        """Judged predictions that do not count: of the present stretch, and of all before it."""
        self._end = self.parts[0].course.size
        self._levels: list[int] = []
        self._asked: dict[int, int] = {}
        self._next = self._oldest = 0
        self.clock = self.judged = self.beyond = 0
        self.basis = Basis()
        """What the guesses' worth rests on: counted by the history that is read."""

    def _part(self) -> SplitSums:
        return SplitSums({name: PolicyTotals() for name in self._arms})

    @property
    def arms(self) -> Mapping[str, PolicyRunner]:
        """Every arm by name."""
        return self._arms

    def chain(self, tenant: str, paths: Sequence[str]) -> Chain:
        """Return the numbers of a prediction's contexts, coarse to fine; it has one at least."""
        numbers: list[int] = []
        for path in paths:
            number = self._numbers.get((tenant, path))
            if number is None:
                if len(self.places) >= self._most and numbers:
                    self.beyond += 1
                    break
                number = self._numbers[tenant, path] = len(self.places)
                self.places.append((tenant, path))
                self._known.append(False)
            numbers.append(number)
        return tuple(numbers)

    def ask(self, chain: Chain) -> int:
        """Note that a prediction is asked about now; return its number for `judge`."""
        number = self._next
        self._next += 1
        level = self._level(chain)
        self._asked[number] = level
        self._questions.append(Question(number, len(self._groups), level))
        self._steps.append((chain, None, number))
        if len(self._steps) - self._since > 4 * self.parts[-1].course.size:
            self._bound()
            if len(self._steps) > 4 * AT_ONCE:
                self.flush()
        return number

    @property
    def asked(self) -> int:
        """How many were asked about: the next one's number."""
        return self._next

    def judge(self, chain: Chain, outcome: Outcome, group: int, asked: int = -1) -> None:
        """Judge a prediction, now that its truth is known, and let every arm learn from it.

        `asked`: its number from `ask`; -1: it is asked about just now.
        `group`: of its workflow, from 0 to GROUPS - 1.
        """
        if self._split is not None and self._past(self._split, outcome.timestamp):
            self.clock = max(self.clock, outcome.timestamp)
            self.flush()
            self._split = None
            self.parts.append(self._part())
            self._end = self.parts[-1].course.size
        level = self._asked.pop(asked) if asked >= 0 else -1
        if self._told is not None:
            self._levels.append(self._level(chain) if level < 0 else level)
        self._steps.append((chain, self._learned_from(chain, outcome), asked))
        if not self._known[chain[-1]]:
            self._bear(chain, len(self._groups))
        self._groups.append(group)
        if outcome.not_startable:
            self._apart += 1
        if len(self._groups) >= self._end:
            self._end_span()

    def _learned_from(self, chain: Chain, outcome: Outcome) -> Outcome:
        """Note what an outcome is worth and what of it a decision could know; return what to
        learn from."""
        self._worth.append(outcome.gain if outcome.correct else -outcome.cost)
        self._stakes_known.append(self._stakes.known(chain, outcome))
        return self._stakes.learn(chain, outcome)

    def _end_span(self) -> None:
        """End a full time span, and the block where that is full too."""
        self._bound()
        if len(self._groups) >= AT_ONCE:
            self.flush()

    def _bound(self) -> None:
        """End a stretch of the course."""
        course, steps, place = self.parts[-1].course, self._steps, self._since
        if count := len(self._groups) - self._begun:
            while (first := steps[place][1]) is None:
                place += 1
            halves = course.add(first.timestamp, count - self._apart)
            self._apart_before += self._apart
            self._apart = 0
            self._stretches.append(TimeSpan(len(self._groups), first.timestamp, halves))
        self._begun, self._since = len(self._groups), len(steps)
        self._end = self._begun + course.size

    def _bear(self, chain: Chain, place: int) -> None:
        """Note which contexts have their first outcome at a place of this block."""
        parent = -1
        for context in chain:
            if not self._known[context]:
                self._known[context] = True
                self._births.append(FirstOutcome(place, parent, context))
            parent = context

    def _past(self, split: Split, at: int) -> bool:
        if split.number is not None:
            apart = self._apart_before + self._apart
            return self.judged + len(self._groups) - apart >= split.number
        return split.at is not None and at >= split.at

    def _level(self, chain: Chain) -> int:
        """Return the finest context that anything is known of; the coarsest where nothing is."""
        known = self._known
        for each in reversed(chain):
            if known[each]:
                return each
        return chain[0]

    def flush(self) -> None:
        """Let the arms catch up with everything that was said so far."""
        self._bound()
        part, contexts = self.parts[-1], len(self.places)
        block = Block(
            self._steps, contexts, self._births, self._questions, self._groups,
            stretches=self._stretches, worth=self._worth, known=self._stakes_known,
        )  # fmt: skip
        if self._steps:
            self._count(block, part, contexts)
            for name, arm in self._arms.items():
                answers = arm.run(block)
                if block:
                    self._add(name, part, block, answers)
        if block:
            part.hindsight.add(block)
            part.reliability.add(block)
            part.drifts.add(block)
        self.judged += len(block)
        self._steps, self._groups, self._levels = [], [], []
        self._births, self._questions, self._stretches = [], [], []
        self._worth, self._stakes_known = [], []
        self._begun = self._since = 0
        self._end = part.course.size
        self._drop()

    def _drop(self) -> None:
        """Drop what `forget` said, now that the arms have heard of all of it."""
        asked, oldest = self._asked, self._oldest
        gone = 0
        while asked and (first := next(iter(asked))) < oldest:
            del asked[first]
            gone += 1
        if gone:
            for arm in self._arms.values():
                arm.forget(oldest)

    def _add(self, name: str, part: SplitSums, block: Block, answers: Answers) -> None:
        part.tallies[name].add(block, answers, len(self.places))
        if self._told is not None:
            self._told(name, [self.places[level][1] for level in self._levels], answers)

    def _count(self, block: Block, part: SplitSums, contexts: int) -> None:
        counts, nth, members = part.counts, block.nth, part.members
        if len(counts) < contexts:
            counts.extend([0] * (contexts - len(counts)))
        if block.not_startable:
            self._count_apart(block, part)
        for group in block.group:
            members[group] += 1
        for leaf in block.leaf:
            counts[leaf] = count = counts[leaf] + 1
            nth.append(count)
        if self.timeline is not None:
            self.timeline.add(block.outcomes)
        if block:
            self.clock = max(self.clock, *[each.timestamp for each in block.outcomes])
            for stretch in block.stretches:
                part.first = part.first or stretch.at
            part.last = max(part.last, self.clock)

    @staticmethod
    def _count_apart(block: Block, part: SplitSums) -> None:
        """Count predictions that no policy could have started, and take them from what counts."""
        for place in block.not_startable:
            leaf, reason = block.leaf[place], block.outcomes[place].not_startable
            part.not_startable[leaf] = part.not_startable.get(leaf, 0) + 1
            part.reasons[reason] = part.reasons.get(reason, 0) + 1
            part.members[block.group[place]] -= 1

    def reset(self, holds: Callable[[str, str], bool]) -> None:
        """Have every arm forget the contexts, by tenant and path, that are to learn anew."""
        known = self._known
        gone = [n for n, place in enumerate(self.places) if known[n] and holds(*place)]
        if not gone:
            return
        self.flush()
        for context in gone:
            known[context] = False
        self._stakes.reset(set(gone))
        for arm in self._arms.values():
            arm.reset(gone)

    def forget(self, before: int) -> None:
        """Forget the predictions of numbers below `before`, which nobody will judge any more."""
        self._oldest = before
