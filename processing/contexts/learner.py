"""Applies outcomes and feedback to every context of their path."""

from __future__ import annotations

from collections.abc import Sequence

from learners.outcome import Outcome
from processing.config import LearningConfig
from processing.contexts.cache import ContextCache
from processing.contexts.context import Context, ContextPath, without_learning
from processing.contexts.levels import ContextKey
from processing.state.clock import PartitionClock
from processing.state.counters import OutcomeRow, count_feedback, outcome_row
from processing.state.expiry_budget import ExpiryBudget


class ContextLearner:
    """Teaches the contexts of a partition, one outcome at a time."""

    def __init__(
        self,
        cache: ContextCache,
        config: LearningConfig,
        clock: PartitionClock,
        budget: ExpiryBudget,
    ) -> None:
        """`budget`: for evicting contexts that new ones displace."""
        self._cache, self._clock, self._budget = cache, clock, budget
        self._feedback_weight = config.feedback_weight

    def learn(self, key: ContextKey, outcome: Outcome, offset: int) -> Sequence[bytes]:
        """Apply one outcome at every level of its path; return the keys of evicted contexts."""
        path = self._cache.path(key)
        at = self._clock.outcome_time(outcome.timestamp)
        self._append(path, outcome_row(outcome, path, at=at), outcome.timestamp, offset)
        return self._evict_excess(path, at, offset)

    def feedback(self, key: ContextKey, outcome: Outcome, offset: int) -> Sequence[bytes]:
        """Apply a user's verdict on a prediction, which counts as `feedback_weight` outcomes.

        Returns the keys of evicted contexts.
        """
        path = self._cache.path(key)
        at = self._clock.outcome_time(outcome.timestamp)
        row = outcome_row(outcome, path, at=at, verdict=True)
        for _ in range(self._feedback_weight):
            self._append(path, row, outcome.timestamp, offset)
        for context in path.contexts:
            count_feedback(context.changing().counts, accepted=outcome.correct)
        return self._evict_excess(path, at, offset)

    def _evict_excess(self, path: ContextPath, at: int, offset: int) -> Sequence[bytes]:
        if not self._cache.has_new:
            return ()
        return self._cache.evict_excess(path.contexts[0].tenant, at, offset, self._budget)

    def _append(self, path: ContextPath, row: OutcomeRow, timestamp: int, offset: int) -> None:
        """Append an outcome of event time `timestamp` (Unix ms) to what a path is to learn.

        Above a down-weighted context only some outcomes count.
        """
        suppressed: Sequence[Context] = ()
        if self._cache.is_downweighted(path):
            downweights = self._cache.downweights
            suppressed = downweights.suppressed_ancestors(path, self._clock.now(timestamp), offset)
            if downweights.depth_in(path) is None:
                self._cache.end_downweight(path)
        if suppressed:
            self._cache.apply_pending()
            with without_learning(suppressed):
                self._enqueue(path, row, offset)
                self._cache.apply_pending()
        else:
            self._enqueue(path, row, offset)

    def _enqueue(self, path: ContextPath, row: OutcomeRow, offset: int) -> None:
        self._cache.expect(path)
        path.pending.append(row)
        path.offset = offset
