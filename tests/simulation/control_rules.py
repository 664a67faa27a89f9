"""Rules about control records and what they change, each of which can be switched off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import processing.control.default_merging
import processing.state.clock
import processing.task
from agents.thresholds.agent import ThresholdAgent
from processing.contexts.cache import ContextCache
from processing.contexts.downweighting import Downweights
from processing.control.learner_assignments import LearnerAssignments
from processing.control.resets_and_seeds import ResetsAndSeeds
from processing.state.clock import PartitionClock
from processing.state.rows import default_key
from topics.control.messages import LearnerChoice

Patches = Any


@contextmanager
def _both(*patches: Patches) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


def a_choice_is_a_row() -> Patches:
    """An operator's choice is in the table, for the next owner of the partition."""
    return patch.object(LearnerAssignments, "drain", lambda _: [])


def a_weighing_is_a_row() -> Patches:
    """Downweighted users, and their positions, are in the table for the next owner."""
    return patch.object(Downweights, "drain", lambda _: [])


def the_newest_choice_holds() -> Patches:
    """Of two choices about the same the later one holds, whichever came first in the log."""
    real = LearnerAssignments.apply

    def apply(self: LearnerAssignments, choice: LearnerChoice, offset: int) -> bool:
        self._held = {
            key: held for key, held in self._held.items() if held.pattern != choice.pattern
        }
        return real(self, choice, offset)

    return patch.object(LearnerAssignments, "apply", apply)


def only_what_is_signed() -> Patches:
    """A control record that no operator signed chooses nothing."""
    real = processing.task.read_control
    return patch.object(
        processing.task,
        "read_control",
        lambda value, headers, at, _: real(value, headers, at, None),
    )


def restored_contexts_are_bounded_too() -> Patches:
    """Contexts that a successor takes up go as those do that it has seen itself."""
    return patch.object(ContextCache, "restore", lambda *_: None)


def defaults_by_the_log() -> Patches:
    """A default enters a partition by its log, and there at an offset."""
    real, real_merge = processing.control.default_merging.DefaultMerger.due, ThresholdAgent._merge
    given: dict[int, Any] = {}

    def due(self: Any, now_ms: int) -> Any:
        found = given[id(self)] = real(self, now_ms)
        return found

    async def merge(self: ThresholdAgent) -> None:
        await real_merge(self)
        for default in [d for o in self._owned.values() for d in given.pop(id(o.merger), ())]:
            for each in self._owned.values():
                each.core.state.defaults._latest[default_key(default.tenant)] = default

    return _both(
        patch.object(processing.control.default_merging.DefaultMerger, "due", due),
        patch.object(ThresholdAgent, "_merge", merge),
    )


def resets_forget_once() -> Patches:
    """A reset, or a seed, that comes again, or after a later one, changes nothing."""
    return patch.object(ResetsAndSeeds, "new", lambda *_: True)


def resets_by_markers() -> Patches:
    """Contexts that a reset forgets are deleted by marker rows."""
    real = ContextCache.forget

    def forget(self: ContextCache, holds: Any, offset: int) -> int:
        before = set(self._touched)
        count = real(self, holds, offset)
        for key in set(self._touched) - before:
            del self._touched[key]
        return count

    return patch.object(ContextCache, "forget", forget)


def sent_until_received() -> Patches:
    """Evidence and defaults are sent again until every partition that they are for has them."""
    real = processing.control.default_merging._Changes.due

    def due(self: Any, answers: Any, moved: Any) -> Any:
        found = real(self, answers, moved)
        for tenant, what in found:
            self.sent(tenant, what)
        return found

    return patch.object(processing.control.default_merging._Changes, "due", due)


def time_by_clock_records() -> Patches:
    """Expiry follows clock records, not the times of events."""
    return patch.object(PartitionClock, "apply", lambda *_: False)


def a_clock_record_moves_the_clock_a_step() -> Patches:
    """A single clock record moves the clock by an hour at the most."""
    return patch.object(processing.state.clock, "STEP_MS", 10**12)


def what_arrives_counts_as_of_the_next_clock_record() -> Patches:
    """In a period without clock records nothing is known to have arrived at its beginning."""
    return patch.object(PartitionClock, "_note_gap", lambda *_, **__: None)


def outcomes_as_of_their_arrival() -> Patches:
    """An outcome counts as of its arrival, whatever its own time."""
    return patch.object(PartitionClock, "outcome_time", lambda _, at: at)


CONTROL_RULES: Final = (
    a_choice_is_a_row, a_weighing_is_a_row, the_newest_choice_holds, only_what_is_signed,
    restored_contexts_are_bounded_too, defaults_by_the_log, sent_until_received,
    resets_forget_once, resets_by_markers, time_by_clock_records,
    a_clock_record_moves_the_clock_a_step, what_arrives_counts_as_of_the_next_clock_record,
    outcomes_as_of_their_arrival,
)  # fmt: skip
