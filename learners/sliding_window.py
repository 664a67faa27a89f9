"""A sliding window with false-positive and false-negative rates: the rule of source 002."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learners.bit_window import push_bit
from learners.bounds import BITS, COUNT, THRESHOLD, outside
from learners.outcome import Outcome, Run
from learners.policy import IndependentPolicy, State, ThresholdPair, clamp


@dataclass(frozen=True)
class Sliding(IndependentPolicy):
    """Source 002: every `every` outcomes, from `least` on, evaluate the last `last` of them.

    False positives are misses at or above a threshold, false negatives hits of the next lower mode.
    If the share of false positives exceeds `fp`, the threshold rises by rate x share; else, if the
    share of false negatives exceeds `fn`, it falls alike. `speculate` starts at the source's
    suggestion threshold (.70), its next lower mode are suggestions; `suggest` starts at the
    source's explicit threshold (.50), its next lower mode are predictions that were not shown. The
    source stores 50 outcomes and reads 20 of them, so 20 are stored, as bits. State: (speculate,
    suggest, outcomes, windows of: speculated, suggested, correct).
    """

    start: float = 0.70
    suggest_start: float = 0.50
    rate: float = 0.05
    fp: float = 0.20
    fn: float = 0.30
    last: int = 20
    every: int = 10
    least: int = 20
    min: float = 0.40
    max: float = 0.90

    columns = True
    name = "sliding"
    version = 1

    def initial(self) -> State:
        """Return (start, suggest_start, 0 and empty windows)."""
        return (self.start, self.suggest_start, 0.0, 0.0, 0.0, 0.0)

    def update(self, state: State, outcome: Outcome) -> State:
        """Return the state after `outcome`, independent of its confidence."""
        speculate, suggest, count, speculated, suggested, correct = state
        count += 1.0
        started = outcome.confidence >= speculate
        shown = not started and outcome.confidence >= suggest
        speculated = push_bit(speculated, started, self.last)
        suggested = push_bit(suggested, shown, self.last)
        correct = push_bit(correct, outcome.correct, self.last)
        if count >= self.least and count % self.every == 0.0:
            a, b, hits = int(speculated), int(suggested), int(correct)
            rest = ((1 << self.last) - 1) & ~(a | b)
            speculate = self._moved(speculate, a, b, hits)
            suggest = min(self._moved(suggest, b, rest, hits), speculate)
        return (speculate, suggest, count, speculated, suggested, correct)

    def course(
        self, state: State, run: Run, *, with_thresholds: bool
    ) -> tuple[State, Sequence[float]]:
        """Do what `update` does, with the windows as integers."""
        speculate, suggest, count = state[:3]
        above, below, right = map(int, state[3:])
        full, least, every = (1 << self.last) - 1, self.least, self.every
        before: list[float] = []
        for confidence, correct in zip(run.confidence, run.correct, strict=True):
            if with_thresholds:
                before.append(speculate)
            count += 1.0
            above, below, right = above << 1, below << 1, right << 1
            if confidence >= speculate:
                above |= 1
            elif confidence >= suggest:
                below |= 1
            if correct:
                right |= 1
            if count >= least and count % every == 0.0:
                above, below, right = above & full, below & full, right & full
                speculate_now = self._moved(speculate, above, below, right)
                rest = full & ~(above | below)
                suggest = min(self._moved(suggest, below, rest, right), speculate_now)
                speculate = speculate_now
        windows = (float(above & full), float(below & full), float(right & full))
        return (speculate, suggest, count, *windows), before

    def _moved(self, threshold: float, above: int, below: int, hits: int) -> float:
        fp = _share(above & ~hits, above)
        if fp > self.fp:
            return clamp(threshold + self.rate * fp, self.min, self.max)
        fn = _share(below & hits, below)
        if fn > self.fn:
            return clamp(threshold - self.rate * fn, self.min, self.max)
        return threshold

    def thresholds(self, state: State) -> ThresholdPair:
        """Return both learned thresholds."""
        return ThresholdPair(state[0], state[1])

    def flaw(self, state: State) -> str | None:
        """Return why a finite state of this length is invalid; None: it is valid."""
        return outside(state, (THRESHOLD, THRESHOLD, COUNT, BITS, BITS, BITS))


def _share(some: int, of: int) -> float:
    return some.bit_count() / of.bit_count() if of else 0.0
