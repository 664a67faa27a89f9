"""Applies one event to the state of a partition."""

from __future__ import annotations

from math import inf
from typing import Final

from headstart.events.schema import START_NEEDS
from learners.outcome import Outcome
from processing.apply.outcome_sink import OutcomeSink
from processing.contexts.eviction import HOUR_MS, next_hour
from processing.contexts.learner import ContextLearner
from processing.partition_state import PartitionState
from processing.state.deduplication import SPOOL_LIFE_MS
from processing.state.open_predictions import START_LIFE_MS, task_of
from processing.state.rows import OpenPredictionRow, start_key
from topics.schema.event_structs import EventFields, PredictionFields

NO_OUTCOME: Final = (
    "data.prediction.was_correct: is missing, and without the guessed and the actual tool_id "
    "it cannot be derived whether the prediction was right"
)


class EventApplier:
    """Changes the state of a partition event by event, and expires what its clock passes."""

    def __init__(self, state: PartitionState, outcomes: OutcomeSink | None = None) -> None:
        """`outcomes`: receives outcomes in place of the contexts."""
        self._state, self._outcomes = state, outcomes
        self._clock, self._contexts = state.clock, state.contexts
        self._learner = ContextLearner(state.contexts, state.config, state.clock, state.budget)
        self._starts, self._deduplicator = state.open_predictions, state.deduplicator
        self._idle_ms = state.config.idle_ms
        self._feedback_counts = state.config.feedback_weight > 0

    def apply(self, event: EventFields, origin: tuple[str, int] | None, offset: int) -> str | None:
        """Apply one event; return the reason where it is rejected."""
        clock = self._clock
        row = clock.row
        if clock.set_by_records:
            if self._is_overdue():
                self._expire(offset, idle=row.idle_left)
        elif event.timestamp > row.clock:
            self._follow_event_time(event.timestamp, offset)
        if origin is not None and self._deduplicator.duplicate(
            event.tenant, event.workflow_type, origin, row.clock, offset
        ):
            row.duplicates += 1
            return None
        if event.event_type == "task_complete":
            return self._complete(event, offset)
        if event.event_type == "speculation_start":
            return self._open(event, offset)
        if event.event_type == "user_feedback":
            self._feedback(event, offset)
        return None

    def advance_clock(self, at: int, offset: int) -> None:
        """Move the clock on to the time of a clock record (Unix ms), and expire what is due."""
        clock, first = self._clock, not self._clock.set_by_records
        before = clock.row.clock
        if not clock.apply(at):
            return
        if first:
            self._state.recompute_ages()
        hours = first or clock.row.clock // HOUR_MS != before // HOUR_MS
        self._expire(offset, idle=clock.row.idle_left or hours)

    def next_expiry(self) -> float:
        """Return the event time, Unix ms, before which nothing expires.

        Infinite, either way, where clock records set the time.
        """
        row = self._clock.row
        if self._clock.set_by_records:
            return -inf if self._is_overdue() else inf
        idle = 0 if row.idle_left else next_hour(row.clock)
        return min(idle, self._starts.next_expiry, self._deduplicator.next_expiry)

    def _follow_event_time(self, at: int, offset: int) -> None:
        """Move the clock on to an event's time, and expire what is due."""
        row = self._clock.row
        before, row.clock = row.clock, at
        self._expire(offset, idle=row.idle_left or at // HOUR_MS != before // HOUR_MS)

    def _expire(self, offset: int, *, idle: bool) -> None:
        """Delete what is due, within this offset's budget. `idle`: idle contexts too."""
        row, budget, reached = self._clock.row, self._state.budget.at(offset), self._clock.reached
        if idle:
            row.expired += self._contexts.expire(reached(self._idle_ms), offset, budget)
            row.idle_left = not budget
        for key in self._starts.expire(reached(START_LIFE_MS), offset, budget):
            self._count_unresolved(key)
        self._deduplicator.expire(reached(SPOOL_LIFE_MS), offset, budget)

    def _is_overdue(self) -> bool:
        """Return whether more was due at the last clock record than its budget allowed."""
        reached = self._clock.reached
        return (
            self._clock.row.idle_left
            or self._starts.next_expiry <= reached(START_LIFE_MS)
            or self._deduplicator.next_expiry <= reached(SPOOL_LIFE_MS)
        )

    def _count_unresolved(self, key: bytes) -> None:
        """Count a start that was closed without a completion."""
        self._clock.row.unresolved += 1
        if self._outcomes is not None:
            self._outcomes.closed(key, completed=False)

    def _open(self, event: EventFields, offset: int) -> str | None:
        if event.task_id is None:
            return f"task_id: {START_NEEDS['task_id']}"
        if event.confidence is None:
            return f"confidence: {START_NEEDS['confidence']}"
        prediction, path = _prediction_of(event), self._contexts.key_of(event)
        start = OpenPredictionRow(
            self._clock.now(event.timestamp),
            event.confidence,
            prediction.tool_id if prediction else None,
            *_mode_of(prediction),
            path[2:],
            event.user_id,
        )
        task = task_of(event)
        key, before = start_key(*task), self._starts.key_of(*task)
        # A row of an earlier version has another key, and is replaced as any other.
        if before != key and self._starts.close(before, offset) is not None:
            self._count_unresolved(before)
        if self._starts.open(key, start, offset):
            self._count_unresolved(key)
        if self._outcomes is not None:
            self._outcomes.opened(key, path, event)
        return None

    def _complete(self, event: EventFields, offset: int) -> str | None:
        key = self._start_of(event)
        start = None if key is None else self._starts.close(key, offset)
        reason = self._learn(event, key, start, offset)
        if key is not None and self._outcomes is not None:
            self._outcomes.closed(key, completed=True)
        return reason

    def _start_of(self, event: EventFields) -> bytes | None:
        """Return the key of the open start that a completion belongs to; None without one.

        Never that of another user's start: then two runs use the same ids.
        """
        if not self._starts or event.task_id is None:
            return None
        key = self._starts.key_of(*task_of(event))
        start = self._starts.get(key)
        if start is None or (
            start.user_id is not None
            and event.user_id is not None
            and start.user_id != event.user_id
        ):
            return None
        return key

    def _learn(
        self, event: EventFields, key: bytes | None, start: OpenPredictionRow | None, offset: int
    ) -> str | None:
        """Learn from the prediction that a completion states, or else from that of its start."""
        prediction, row = _prediction_of(event), self._clock.row
        correct, stated = prediction.was_correct if prediction else None, False
        if event.confidence is not None and correct is not None:
            path, stated = self._contexts.key_of(event), True
            confidence, (mode, speculated) = event.confidence, _mode_of(prediction)
        elif start is None:
            row.unmatched += 1
            if self._outcomes is not None:
                self._outcomes.unmatched(event)
            return None
        else:
            path = (event.tenant, event.workflow_type, *start.levels)
            confidence, mode, speculated = start.confidence, start.mode, start.speculated
            if correct is None:
                if start.tool_id is None or event.tool_id is None:
                    return NO_OUTCOME
                correct = start.tool_id == event.tool_id
        try:
            outcome = outcome_of(event, confidence, correct, mode, speculated)
        except ValueError as error:
            return f"data.result: {error}"
        row.outcomes += 1
        if self._outcomes is not None:
            self._outcomes.learn(path, outcome, event, key, stated)
            return None
        row.evicted += len(self._learner.learn(path, outcome, offset))
        return None

    def _feedback(self, event: EventFields, offset: int) -> None:
        """Learn from a user's verdict that repeats the confidence; others are only stored."""
        data = event.data
        if event.confidence is None or data is None or data.accepted is None:
            return
        if not self._feedback_counts:
            return
        outcome = Outcome(event.confidence, data.accepted, timestamp=event.timestamp)
        evicted = self._learner.feedback(self._contexts.key_of(event), outcome, offset)
        self._clock.row.evicted += len(evicted)


def _prediction_of(event: EventFields) -> PredictionFields | None:
    return event.data.prediction if event.data else None


def _mode_of(prediction: PredictionFields | None) -> tuple[str, bool]:
    """Return the mode of a prediction, and whether it was speculated on."""
    if prediction is None:
        return "speculative", False
    return prediction.mode or "speculative", bool(prediction.speculated)


def outcome_of(
    event: EventFields, confidence: float, correct: bool, mode: str, speculated: bool
) -> Outcome:
    """Return the outcome that an event states of a prediction. Raises `ValueError`."""
    result = event.data.result if event.data else None
    if result is None:
        gain = cost = execution = 0.0
    else:
        gain, cost = result.gain_ms or 0.0, result.cost_ms or 0.0
        execution = result.execution_time_ms or 0.0
    return Outcome(confidence, correct, speculated, gain, cost, execution, mode, event.timestamp)
