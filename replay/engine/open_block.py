"""The block that predictions are gathered in until the policies run over it."""

from __future__ import annotations

from dataclasses import dataclass, field

from replay.engine.accumulators import TimeBuckets
from replay.predictions.blocks import Block, FirstOutcome, Question, Step, TimeSpan


@dataclass
class OpenBlock:
    """The columns of a `Block`; `levels`: of each prediction the finest known context when asked.

    Its time spans each hold `buckets.size` predictions, or four times as many steps.
    """

    buckets: TimeBuckets
    steps: list[Step] = field(default_factory=list)
    first_outcomes: list[FirstOutcome] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    spans: list[TimeSpan] = field(default_factory=list)
    worth: list[float] = field(default_factory=list)
    known: list[tuple[float, float]] = field(default_factory=list)
    unsure: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    believed: list[tuple[int, float]] = field(default_factory=list)
    """Places and thresholds of calibrated guesses in a cold start."""
    not_startable: int = 0
    """Of the present time span."""
    _begin: int = 0
    _steps: int = 0
    """Predictions, and steps, before the present time span."""

    def __post_init__(self) -> None:
        self.span_end = self.buckets.size
        """Predictions at which the present time span is full."""

    def is_span_long(self) -> bool:
        """Return whether the present time span has questions enough to end early."""
        return len(self.steps) - self._steps > 4 * self.buckets.size

    def end_span(self) -> int:
        """End the present time span; return how many of it could not be started."""
        not_startable, place, count = self.not_startable, self._steps, len(self.group) - self._begin
        if count:
            while (first := self.steps[place][1]) is None:
                place += 1
            halves = self.buckets.add(first.timestamp, count - not_startable)
            self.spans.append(TimeSpan(len(self.group), first.timestamp, halves))
            self.not_startable = 0
        self._begin, self._steps = len(self.group), len(self.steps)
        self.span_end = self._begin + self.buckets.size
        return not_startable

    def closed(self, contexts: int) -> Block:
        """Return the block; `contexts`: how many there are."""
        return Block(
            self.steps, contexts, self.first_outcomes, self.questions, self.group,
            stretches=self.spans, worth=self.worth, known=self.known, unsure=self.unsure,
        )  # fmt: skip
