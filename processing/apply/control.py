"""Applies control records to the state of a partition."""

from __future__ import annotations

from headstart.keys import workflow_type_of
from processing.apply.outcome_sink import OutcomeSink
from processing.apply.per_event import EventApplier
from processing.contexts.seeding import seed_contexts
from processing.control.learner_assignments import matcher
from processing.partition_state import PartitionState
from processing.records.partitioner import partition_for
from topics.control.messages import (
    Clock,
    Control,
    Downweight,
    LearnerChoice,
    Purge,
    Rebuild,
    Reset,
    Seed,
    Staged,
    refuse_misplaced,
)
from topics.control.purges import context_matcher


class ControlApplier:
    """Applies the control records of one partition."""

    def __init__(
        self,
        partition: int,
        partitions: int,
        state: PartitionState,
        events: EventApplier,
        outcomes: OutcomeSink | None = None,
    ) -> None:
        """`outcomes`: receives resets; what concerns the state of contexts is then ignored."""
        self._partition, self._partitions = partition, partitions
        self._state, self._events, self._outcomes = state, events, outcomes

    def apply(self, control: Control, offset: int) -> Rebuild | None:
        """Apply a control record; return the rebuild that it begins.

        Raises `ValueError`, with nothing changed.
        """
        if self._outcomes is not None and not isinstance(control, Clock):
            if isinstance(control, Reset | Purge):
                self._forget(control, offset)
            return None
        refuse_misplaced(control, self._partition)
        state = self._state
        if isinstance(control, Rebuild):
            return state.rebuilds.begin(control, offset)
        if isinstance(control, LearnerChoice):
            if state.assignments.apply(control, offset):
                state.contexts.clear_paths()
        elif isinstance(control, Reset | Purge):
            self._forget(control, offset)
        elif isinstance(control, Seed):
            self._seed(control, offset)
        elif isinstance(control, Clock):
            self._events.advance_clock(control.at, offset)
        elif isinstance(control, Downweight):
            self._check_partition(control.tenant, control.path)
            if state.contexts.downweights.apply(control, state.row.clock, offset):
                state.contexts.clear_paths()
        elif not isinstance(control, Staged):
            state.defaults.apply(control, offset)
        return None

    def _forget(self, record: Reset | Purge, offset: int) -> None:
        """Delete the contexts that match a reset, or that have the subject of a purge in them."""
        state = self._state
        if not state.resets_and_seeds.new(record):
            return
        if isinstance(record, Purge):
            # Never refused: `replay.purge` sends as many records as its contexts need.
            holds, forget = context_matcher(record), state.contexts.forget_some
        else:
            holds, forget = matcher(record.pattern, record.tenant), state.contexts.forget
        if self._outcomes is None:
            state.row.forgotten += forget(holds, offset)
        else:
            self._outcomes.reset(holds)
        state.resets_and_seeds.note(record, offset)

    def _seed(self, seed: Seed, offset: int) -> None:
        state = self._state
        for each in seed.contexts:
            self._check_partition(seed.tenant, each.path)
        if state.resets_and_seeds.new(seed):
            seed_contexts(state.contexts, state.clock, state.config.idle_ms, seed, offset)
            state.row.seeded += len(seed.contexts)
            evicted = state.contexts.evict_excess(seed.tenant, 0, offset, state.budget)
            state.row.evicted += len(evicted)
            state.resets_and_seeds.note(seed, offset)

    def _check_partition(self, tenant: str, path: str) -> None:
        """Raise `ValueError` where a context belongs to another partition."""
        right = partition_for(tenant, workflow_type_of(path), self._partitions)
        if right != self._partition:
            raise ValueError(f"path: {path} belongs to partition {right}")
