"""The backtest engine: predictions go in in their order, sums per policy come out.

A prediction may be asked about long before its outcome is known, as in its log: each policy answers
with what it knew then. Not here: where predictions come from (`replay.sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from learners.outcome import Outcome
from learners.policy import Policy
from replay.engine.accumulators import PolicyTotals
from replay.engine.context_registry import ContextRegistry
from replay.engine.open_block import OpenBlock
from replay.engine.policy_runners import Answers, LiveRunner, PolicyRunner, runner_for
from replay.engine.split_sums import Split, SplitSums
from replay.engine.timeline import Timeline
from replay.predictions.assumptions import AssumedOutcome, Basis
from replay.predictions.blocks import Chain, Question
from replay.predictions.cold_start import ColdStart, believed, believing
from replay.predictions.stakes import StakesHistory
from replay.predictions.utility import worth_of

LIVE: Final = "live"
"""The name of the runner that does what the executors did."""
MOST_CONTEXTS: Final = 50_000
"""Contexts of one partition that are distinguished; the rest are judged by their parent."""
AT_ONCE: Final = 1024
"""Predictions of a block: more make no policy faster."""

AnswerObserver = Callable[[str, Sequence[str], Answers], None]
"""Called per policy and block with the finest known path of each prediction, and the answers."""


class BacktestEngine:
    """Runs policies over the predictions of one partition.

    `split`: where a second part of the sums begins. `timed`: whether `timeline` is kept.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        *,
        live: bool = False,
        suggest: bool = False,
        split: Split | None = None,
        most_contexts: int = MOST_CONTEXTS,
        observer: AnswerObserver | None = None,
        timed: bool = False,
    ) -> None:
        self.runners: dict[str, PolicyRunner] = {
            name: runner_for(policy, suggest=suggest) for name, policy in policies.items()
        }
        self._believing = {name for name, policy in policies.items() if believing(policy)}
        if live:
            self.runners[LIVE] = LiveRunner()
        self._split, self._observer = split, observer
        self.timeline = Timeline() if timed else None
        self.contexts = ContextRegistry(most_contexts)
        self.chain = self.contexts.chain
        self.basis = Basis()
        """What the worth of guesses rests on; counted by the reader."""
        self._stakes = StakesHistory[int]()
        self._cold_start = ColdStart[int]()
        self.parts = [self._new_part()]
        self._block = OpenBlock(self.parts[0].buckets)
        self._not_startable = 0
        """Predictions that could not be started, of all time spans before the present one."""
        self._asked: dict[int, tuple[int, int]] = {}
        """By the number of each open question: the finest known context, and how many outcomes its
        workflow type had."""
        self._next = self._oldest = 0
        self._clock = self.judged = 0

    def _new_part(self) -> SplitSums:
        return SplitSums({name: PolicyTotals() for name in self.runners})

    def ask(self, chain: Chain) -> int:
        """Note that a prediction is asked about now; return its number for `judge`."""
        number, level, block = self._next, self.contexts.finest_known(chain), self._block
        self._next += 1
        self._asked[number] = level, self._cold_start.outcomes(chain)
        block.questions.append(Question(number, len(block.group), level))
        block.steps.append((chain, None, number))
        if block.is_span_long():
            self._not_startable += block.end_span()
            if len(block.steps) > 4 * AT_ONCE:
                self.flush()
        return number

    @property
    def asked(self) -> int:
        """How many were asked about: the next one's number."""
        return self._next

    def judge(self, chain: Chain, outcome: Outcome, group: int, asked: int = -1) -> None:
        """Judge a prediction whose outcome is known, and have every policy learn from it.

        `asked`: its number from `ask`; -1: it is asked about just now.
        `group`: of its workflow, from 0 to GROUPS - 1.
        """
        if self._split is not None and self._is_past(self._split, outcome.timestamp):
            self._clock = max(self._clock, outcome.timestamp)
            self._split = None
            self.flush(self._new_part())
        block = self._block
        level, had = self._asked.pop(asked) if asked >= 0 else (-1, -1)
        if outcome.calibrated:
            had = self._cold_start.outcomes(chain) if had < 0 else had
            threshold = believed(chain, outcome, had, self._stakes)
            if threshold is not None:
                block.believed.append((len(block.group), threshold))
        self._cold_start.learn(chain)
        if self._observer is not None:
            block.levels.append(self.contexts.finest_known(chain) if level < 0 else level)
        if type(outcome) is AssumedOutcome and (outcome.unpriced or outcome.estimate is not None):
            block.unsure.append(len(block.group))
        block.worth.append(worth_of(outcome))
        block.known.append(self._stakes.known(chain, outcome))
        block.steps.append((chain, self._stakes.learn(chain, outcome), asked))
        block.first_outcomes += self.contexts.add_outcome(chain, len(block.group))
        block.group.append(group)
        block.not_startable += bool(outcome.not_startable)
        if len(block.group) >= block.span_end:
            self._not_startable += block.end_span()
            if len(block.group) >= AT_ONCE:
                self.flush()

    def _is_past(self, split: Split, at: int) -> bool:
        if split.number is not None:
            block = self._block
            seen = self.judged + len(block.group)
            return seen - self._not_startable - block.not_startable >= split.number
        return split.at is not None and at >= split.at

    def flush(self, next_part: SplitSums | None = None) -> None:
        """Run the policies over everything so far; `next_part`: takes the sums from here on."""
        part, opened = self.parts[-1], self._block
        self._not_startable += opened.end_span()
        block = opened.closed(len(self.contexts))
        if next_part is not None:
            self.parts.append(next_part)
        self._block = OpenBlock(self.parts[-1].buckets)
        if block:
            self._clock = max(self._clock, *[each.timestamp for each in block.outcomes])
        if block.steps:
            part.count(block, self._clock)
            if self.timeline is not None:
                self.timeline.add(block.outcomes)
            for name, runner in self.runners.items():
                answers = runner.run(block)
                if name in self._believing:
                    answers = answers.replaced(opened.believed)
                if block:
                    part.totals[name].add(block, answers, block.contexts)
                    if self._observer is not None:
                        places = self.contexts.places
                        self._observer(name, [places[each][1] for each in opened.levels], answers)
        if block:
            part.add(block)
        self.judged += len(block)
        self._drop_forgotten()

    def _drop_forgotten(self) -> None:
        """Drop what `forget` named, now that the policies have run over all of it."""
        before = len(self._asked)
        while self._asked and (first := next(iter(self._asked))) < self._oldest:
            del self._asked[first]
        if len(self._asked) < before:
            for runner in self.runners.values():
                runner.forget(self._oldest)

    def reset(self, holds: Callable[[str, str], bool]) -> None:
        """Have every policy forget the contexts that a predicate of tenant and path holds for."""
        contexts = self.contexts.matching(holds)
        if not contexts:
            return
        self.flush()
        self.contexts.reset(contexts)
        self._stakes.reset(set(contexts))
        self._cold_start.reset(set(contexts))
        for runner in self.runners.values():
            runner.reset(contexts)

    def forget(self, before: int) -> None:
        """Forget the predictions of numbers below `before`, which will not be judged."""
        self._oldest = before
