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
from learners.policy import Policy, State, Thresholds
from processing.rows import (
    ContextRow,
    context_key,
    context_of,
    decode_context,
    encode_context,
)
from topics.records import EventFields
from topics.schema import Threshold

CACHE_LIMIT: Final = 200_000
"""Most contexts kept in memory, about 700 bytes each."""

_ROW_BYTES: Final = 256
"""Bytes of a row without its key, at the most, and what a record batch adds to it."""

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
        update, touched = self._policy.update, self._touched
        for context in chain:
            context.state = update(context.state, outcome)
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
        chain = tuple(
            self._context(tenant, path)
            for path in context_paths(workflow_type, values.get, self._levels)
        )
        self._chains[(tenant, workflow_type, *levels)] = chain
        return chain

    def _context(self, tenant: str, path: str) -> Context:
        key = context_key(tenant, path)
        context = self._contexts.get(key)
        if context is None:
            context = Context(tenant, path, self._policy.initial())
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
        if (row.policy, row.policy_version) == (self._policy.name, self._policy.version):
            context.state = row.state
            context.served = self._policy.thresholds(row.state)

    @property
    def touched_bytes(self) -> int:
        """Bytes, at the most, of the rows that changed since the last `drain`."""
        return len(self._touched) * (self._longest_key + _ROW_BYTES)

    def drain(self) -> tuple[list[tuple[bytes, bytes]], list[Threshold], list[Threshold]]:
        """Return what changed: rows, their thresholds, and those thresholds that moved."""
        rows, thresholds, moved = [], [], []
        for context in self._touched.values():
            row = self._row(context)
            rows.append((context.key, encode_context(row)))
            served = self._policy.thresholds(context.state)
            record = _threshold(context.tenant, context.path, row, served)
            thresholds.append(record)
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
    known = (row.policy, row.policy_version) == (policy.name, policy.version)
    served = policy.thresholds(row.state if known else policy.initial())
    return _threshold(*context_of(key), row, served)


def _threshold(tenant: str, path: str, row: ContextRow, served: Thresholds) -> Threshold:
    return Threshold(
        tenant=tenant,
        workflow_type=workflow_type_of(path),
        path=path,
        speculate=served.speculate,
        suggest=served.suggest,
        epoch=row.epoch,
        offset=row.offset,
        outcomes=row.outcomes,
        learner=row.policy,
        at=row.at,
    )
