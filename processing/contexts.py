"""The contexts of one partition in memory: found per event, updated per outcome, written per batch.

A cache over the table's rows: whatever it drops can be loaded again, because every row touched is
in the commit before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from headstart.contexts import context_paths, level_value, workflow_type_of
from learners.outcome import Outcome
from learners.policy import Policy, State, Thresholds, spec
from processing.rows import (
    ContextRow,
    context_key,
    context_of,
    decode_context,
    encode_context,
)
from topics.records import EventFields
from topics.schema import Deviation, Threshold

CACHE_LIMIT: Final = 200_000
"""Most contexts kept in memory, about 700 bytes each."""

_ROW_BYTES: Final = 192
"""Bytes of a row without its key and its learner's state, and what a record batch adds to it."""

_TOP_LEVEL: Final = {"user_id", "agent_id", "session_id", "tool_id"}


class Context:
    """One context: its learner's state and what was counted."""

    __slots__ = (
        "at", "hits", "key", "offset", "outcomes", "path", "served", "speculated", "state",
        "tenant",
    )  # fmt: skip

    def __init__(self, tenant: str, path: str, state: State) -> None:
        self.key = context_key(tenant, path)
        self.tenant, self.path = tenant, path
        self.state = state
        self.outcomes = self.speculated = self.hits = self.at = 0
        self.offset = -1
        self.served: Thresholds | None = None


class Contexts:
    """The contexts of one partition."""

    def __init__(
        self,
        policy: Policy,
        levels: Sequence[str],
        epoch: int,
        load: Callable[[bytes], bytes | None],
    ) -> None:
        self._policy = policy
        self._learner = spec(policy)
        self._row_bytes = _ROW_BYTES + 8 * len(policy.initial())
        self._levels = tuple(levels)
        self._epoch = epoch
        self._load = load
        self._getters = [_getter(level) for level in levels]
        self._chains: dict[tuple[str | None, ...], tuple[Context, ...]] = {}
        self._contexts: dict[bytes, Context] = {}
        self._touched: dict[bytes, Context] = {}
        self._longest_key = 0

    def levels_of(self, event: EventFields) -> tuple[str | None, ...]:
        """Return the values that place an event's context below its workflow type."""
        return tuple([getter(event) for getter in self._getters])  # faster than a generator

    def learn(
        self,
        tenant: str,
        workflow_type: str,
        levels: tuple[str | None, ...],
        outcome: Outcome,
        offset: int,
    ) -> None:
        """Apply one outcome at every level of its context, coarse to fine."""
        chain = self._chains.get((tenant, workflow_type, *levels))
        if chain is None:
            chain = self._find(tenant, workflow_type, levels)
        touched = self._touched
        states = self._policy.learn([context.state for context in chain], outcome)
        for context, state in zip(chain, states, strict=True):
            context.state = state
            context.outcomes += 1
            if outcome.speculated:
                context.speculated += 1
                if outcome.correct:
                    context.hits += 1
            if outcome.timestamp > context.at:
                context.at = outcome.timestamp
            context.offset = offset
            touched[context.key] = context

    def _find(
        self, tenant: str, workflow_type: str, levels: tuple[str | None, ...]
    ) -> tuple[Context, ...]:
        values = dict(zip(self._levels, levels, strict=True))
        chain: list[Context] = []
        for path in context_paths(workflow_type, values.get, self._levels):
            chain.append(self._context(tenant, path, chain[-1] if chain else None))
        found = self._chains[(tenant, workflow_type, *levels)] = tuple(chain)
        return found

    def _context(self, tenant: str, path: str, parent: Context | None) -> Context:
        key = context_key(tenant, path)
        context = self._contexts.get(key)
        if context is None:
            policy = self._policy
            state = policy.begin(parent.state) if parent else policy.initial()
            context = Context(tenant, path, state)
            raw = self._load(key)
            if raw is not None:
                self._restore(context, decode_context(raw))
            self._contexts[key] = context
            self._longest_key = max(self._longest_key, len(key))
        return context

    def _restore(self, context: Context, row: ContextRow) -> None:
        context.outcomes, context.speculated, context.hits = row.outcomes, row.speculated, row.hits
        context.at, context.offset = row.at, row.offset
        # Another learner's state means nothing to this one, which then starts anew.
        state = _state_of(row, self._policy)
        if state is not None:
            context.state = state
            context.served = self._policy.thresholds(state)

    @property
    def touched_bytes(self) -> int:
        """Bytes, at the most, of the rows that changed since the last `drain`."""
        return len(self._touched) * (self._longest_key + self._row_bytes)

    def drain(self) -> tuple[list[tuple[bytes, bytes]], list[Threshold], list[Threshold]]:
        """Return what changed: rows, their thresholds, and those thresholds that moved."""
        rows, thresholds, moved = [], [], []
        for context in self._touched.values():
            row = self._row(context)
            rows.append((context.key, encode_context(row)))
            record = _threshold(context.key, row, self._policy, context.state, self._learner)
            thresholds.append(record)
            served = Thresholds(record.speculate, record.suggest)
            if served != context.served:
                context.served = served
                moved.append(record)
        self._touched.clear()
        if len(self._contexts) > CACHE_LIMIT or len(self._chains) > CACHE_LIMIT:
            self._contexts.clear()
            self._chains.clear()
        return rows, thresholds, moved

    def _row(self, context: Context) -> ContextRow:
        return ContextRow(
            self._epoch, context.offset, context.at, context.outcomes, context.speculated,
            context.hits, self._policy.version, self._policy.name, context.state,
        )  # fmt: skip


def _getter(level: str) -> Callable[[EventFields], str | None]:
    """Return how to read one level's value; numbers become the text that the reader sees too."""
    if level in _TOP_LEVEL:
        return attrgetter(level)

    def read(event: EventFields) -> str | None:
        data = event.data
        context = data.context if data is not None else None
        return level_value(context.get(level)) if context else None

    return read


def stored_threshold(key: bytes, raw: bytes, policy: Policy) -> Threshold:
    """Return what a context's row answers, as it is published."""
    row = decode_context(raw)
    state = _state_of(row, policy)
    return _threshold(key, row, policy, policy.initial() if state is None else state, spec(policy))


def _state_of(row: ContextRow, policy: Policy) -> State | None:
    """Return the learner's state in a row, None where another learner wrote it."""
    return policy.migrated(row.policy_version, row.state) if row.policy == policy.name else None


def _threshold(
    key: bytes, row: ContextRow, policy: Policy, state: State, learner: str
) -> Threshold:
    tenant, path = context_of(key)
    served, deviation = policy.thresholds(state), policy.deviation(state)
    return Threshold(
        tenant=tenant,
        workflow_type=workflow_type_of(path),
        path=path,
        speculate=served.speculate,
        suggest=served.suggest,
        epoch=row.epoch,
        offset=row.offset,
        outcomes=row.outcomes,
        learner=learner,
        at=row.at,
        deviation=Deviation(*deviation) if deviation else None,
    )
