"""What one event does to the state of a partition. Not here: where events come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headstart.events.schema import START_NEEDS
from learners.outcome import Outcome
from processing.config import LearningConfig
from processing.contexts.cache import ContextCache
from processing.contexts.eviction import HOUR_MS
from processing.control.learned_defaults import LearnedDefaults
from processing.control.learner_assignments import LearnerAssignments
from processing.state.clock import PartitionClock
from processing.state.deduplication import SPOOL_LIFE_MS, Deduplicator
from processing.state.expiry_budget import ExpiryBudget
from processing.state.open_predictions import START_LIFE_MS, OpenPredictions, task_of
from processing.state.rows import OpenPredictionRow, TaskStateRow, start_key
from topics.schema.event_structs import EventFields

CACHED: Final = 400_000
"""Most contexts that a worker keeps at hand, some 1,700 bytes each, where it owns every partition;
and as many positions of spools, some 400 bytes each."""


class EventApplier:
    """The contexts, open starts and positions of a partition, changed event by event."""

    def __init__(
        self,
        rules: LearningConfig,
        partitions: int,
        epoch: int,
        load: Callable[[bytes], bytes | None],
    ) -> None:
        self._feedback_counts = rules.feedback_weight > 0
        self._weights = rules.weights
        self._choices, self._defaults = LearnerAssignments(epoch), LearnedDefaults(epoch)
        most = CACHED // partitions
        self._row = TaskStateRow()
        self.clock = PartitionClock(self._row)
        """What time it is here, and whether clock records say so."""
        self._idle_ms = rules.idle_ms
        self._contexts = ContextCache(rules, self._choices, self._defaults, epoch, load, most)
        self._contexts.clock = self.clock
        self._spools = Deduplicator(epoch, load, most, self.clock.arrived)
        self._starts = OpenPredictions(epoch, self.clock.arrived)
        self._room = ExpiryBudget()

    @property
    def _gathered(self) -> int:
        """Bytes, at the most, of the rows that changed since the last commit."""
        contexts, spools, starts = self._contexts, self._spools, self._starts
        return contexts.touched_bytes + spools.touched_bytes + starts.touched_bytes

    def _event(self, event: EventFields, origin: tuple[str, int] | None, offset: int) -> str | None:
        """Apply one event; return a reason where the rules of outcomes refuse it."""
        if self.clock.witnessed:
            if self._overdue():
                self._expire(offset, idle=self._row.idle_left)
        elif event.timestamp > self._row.clock:
            self._move_clock(event.timestamp, offset)
        if origin is not None and self._spools.duplicate(
            event.tenant, event.workflow_type, origin, self._row.clock, offset
        ):
            self._row.duplicates += 1
            return None
        if event.event_type == "task_complete":
            return self._complete(event, offset)
        if event.event_type == "speculation_start":
            return self._open(event, offset)
        if event.event_type == "user_feedback":
            self._feedback(event, offset)
        return None

    def _move_clock(self, clock: int, offset: int) -> None:
        """Move the clock on to an event's time, and have end what then is over."""
        row = self._row
        before, row.clock = row.clock, clock
        self._expire(offset, idle=row.idle_left or clock // HOUR_MS != before // HOUR_MS)

    def _witness(self, at: int, offset: int) -> None:
        """Move the clock on to what a clock record says, and have end what then is over."""
        row, first = self._row, not self.clock.witnessed
        before = row.clock
        if not self.clock.witness(at):
            return
        if first:
            self._contexts.judge_again()
            self._spools.judge_again()
            self._starts.judge_again()
        hours = first or row.clock // HOUR_MS != before // HOUR_MS
        self._expire(offset, idle=row.idle_left or hours)

    def _expire(self, offset: int, *, idle: bool) -> None:
        """Have end what is over, while there is room. `idle`: contexts too."""
        row, room, reached = self._row, self._room.at(offset), self.clock.reached
        if idle:
            row.expired += self._contexts.expire(reached(self._idle_ms), offset, room)
            row.idle_left = not room
        row.unresolved += self._starts.expire(reached(START_LIFE_MS), offset, room)
        self._spools.expire(reached(SPOOL_LIFE_MS), offset, room)

    def _overdue(self) -> bool:
        """Return whether more is over than there was room for as the last clock record came."""
        reached = self.clock.reached
        return (
            self._row.idle_left
            or self._starts.next_expiry <= reached(START_LIFE_MS)
            or self._spools.next_expiry <= reached(SPOOL_LIFE_MS)
        )

    def _open(self, event: EventFields, offset: int) -> str | None:
        if event.task_id is None:
            return f"task_id: {START_NEEDS['task_id']}"
        if event.confidence is None:
            return f"confidence: {START_NEEDS['confidence']}"
        prediction = event.data.prediction if event.data else None
        start = OpenPredictionRow(
            self.clock.now(event.timestamp),
            event.confidence,
            prediction.tool_id if prediction else None,
            (prediction.mode if prediction else None) or "speculative",
            bool(prediction and prediction.speculated),
            self._contexts.levels_of(event),
            event.user_id,
        )
        task = task_of(event)
        key, before = start_key(*task), self._starts.key_of(*task)
        if before != key:  # a row of an earlier version, which is replaced as any other is
            self._row.unresolved += self._starts.close(before, offset) is not None
        self._row.unresolved += self._starts.open(key, start, offset)
        return None

    def _complete(self, event: EventFields, offset: int) -> str | None:
        start = None
        if (key := self._start_of(event)) is not None:
            start = self._starts.close(key, offset)
        prediction = event.data.prediction if event.data else None
        correct = prediction.was_correct if prediction else None
        if event.confidence is not None and correct is not None:
            mode = (prediction.mode if prediction else None) or "speculative"
            speculated = bool(prediction and prediction.speculated)
            levels = self._contexts.levels_of(event)
            return self._learn(event, levels, event.confidence, correct, mode, speculated, offset)
        if start is None:
            self._row.unmatched += 1
            return None
        if correct is None:
            if start.tool_id is None or event.tool_id is None:
                return (
                    "data.prediction.was_correct: is missing, and without the guessed and "
                    "the actual tool_id nobody can tell whether the prediction was right"
                )
            correct = start.tool_id == event.tool_id
        return self._learn(
            event, start.levels, start.confidence, correct, start.mode, start.speculated, offset
        )

    def _start_of(self, event: EventFields) -> bytes | None:
        """Return the key of the open start that a completion belongs to; None where there is none.

        It belongs to none of another user's: then two runs have the same ids.
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
        self,
        event: EventFields,
        levels: tuple[str | None, ...],
        confidence: float,
        correct: bool,
        mode: str,
        speculated: bool,
        offset: int,
    ) -> str | None:
        try:
            outcome = outcome_of(event, confidence, correct, mode, speculated)
        except ValueError as error:
            return f"data.result: {error}"
        self._row.outcomes += 1
        self._contexts.learn(event.tenant, event.workflow_type, levels, outcome, offset)
        if self._contexts.new:
            self._row.evicted += self._bound(event, offset)
        return None

    def _bound(self, event: EventFields, offset: int) -> int:
        room = self._room.at(offset)
        at = self.clock.heard(event.timestamp)
        return self._contexts.bound(event.tenant, at, offset, room)

    def _feedback(self, event: EventFields, offset: int) -> None:
        """Learn from a user's verdict where it repeats the confidence; else it is only stored."""
        data = event.data
        if event.confidence is None or data is None or data.accepted is None:
            return
        if not self._feedback_counts:
            return
        outcome = Outcome(event.confidence, data.accepted, timestamp=event.timestamp)
        levels = self._contexts.levels_of(event)
        self._contexts.feedback(event.tenant, event.workflow_type, levels, outcome, offset)
        if self._contexts.new:
            self._row.evicted += self._bound(event, offset)


def outcome_of(
    event: EventFields, confidence: float, correct: bool, mode: str, speculated: bool
) -> Outcome:
    """Return what an event says of a prediction. Raises `ValueError`; see `Outcome`."""
    result = event.data.result if event.data else None
    if result is None:
        gain = cost = execution = 0.0
    else:
        gain, cost = result.gain_ms or 0.0, result.cost_ms or 0.0
        execution = result.execution_time_ms or 0.0
    return Outcome(confidence, correct, speculated, gain, cost, execution, mode, event.timestamp)
