"""The contexts of one partition in memory: found per event, written per commit.

A cache over the rows of the table. Whatever it drops can be loaded again, because every changed
row is in the commit before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headstart.keys import context_paths
from learners.policy import Policy, State, spec
from processing.config import LearningConfig
from processing.contexts.context import Context, ContextPath
from processing.contexts.downweighting import Downweights
from processing.contexts.eviction import EvictionIndex
from processing.contexts.levels import ContextKey, context_key_getter
from processing.contexts.pending_updates import PendingUpdates
from processing.contexts.thresholds import answer, threshold_from_row
from processing.control.learned_defaults import LearnedDefaults
from processing.control.learner_assignments import LearnerAssignments
from processing.state.chunking import ROW_EXTRA
from processing.state.clock import PartitionClock
from processing.state.expiry_budget import ExpiryBudget
from processing.state.rows import (
    context_key,
    context_of,
    decode_context,
    deleted,
    is_deleted,
    newest_outcome,
)
from topics.schema.json_schema import PublishedThreshold

Published = list[PublishedThreshold]
FORGOTTEN_BYTES: Final = 6_000_000
"""Most bytes of the rows that delete contexts at one offset: they must fit one commit."""
_ROW_BYTES: Final = 288
"""Bytes of a row without its key and its learner's state, and what a record batch adds to it."""


def forgotten_bytes(keys: Iterable[bytes]) -> int:
    """Return the bytes of the rows that delete the contexts with these row keys."""
    return sum(len(key) + ROW_EXTRA for key in keys)


def _that_fit(keys: Iterable[bytes]) -> Iterator[bytes]:
    """Yield keys until the next one would exceed what one commit can delete."""
    room = FORGOTTEN_BYTES
    for key in keys:
        room -= forgotten_bytes([key])
        if room < 0:
            return
        yield key


class ContextCache:
    """The contexts of one partition, and which of them changed.

    Outcomes are appended to the `pending` list of their path and learned together when a context
    is read, at the latest for the commit.
    """

    def __init__(
        self,
        config: LearningConfig,
        assignments: LearnerAssignments,
        defaults: LearnedDefaults,
        clock: PartitionClock,
        epoch: int,
        load: Callable[[bytes], bytes | None],
        most: int,
    ) -> None:
        """`load` reads a row. `most`: contexts that stay cached from one `drain` to the next."""
        self._policy, self._assignments, self._defaults = config.policy, assignments, defaults
        self.levels = tuple(config.levels)
        self._epoch, self._clock = epoch, clock
        self._load, self._most = load, most
        self.key_of = context_key_getter(config.levels)
        """Returns the key of an event's path in `paths`."""
        self.paths: dict[ContextKey, ContextPath] = {}
        """Cached paths, only of this partition's events, without those of down-weighted users."""
        self._downweighted: dict[ContextKey, ContextPath] = {}
        self.downweights = Downweights(epoch)
        self._contexts: dict[bytes, Context] = {}
        self._touched: dict[bytes, Context | int] = {}
        """What changed since the last `drain`: contexts, or the offset of a deletion."""
        self._unanswered: dict[bytes, Context | int] = {}
        """The same since the last `answers` or `drain`."""
        self._eviction = EvictionIndex(config.idle_ms, config.most_contexts)
        self._new: list[Context] = []
        self._touched_paths: list[ContextPath] = []
        self.updates = PendingUpdates(config.weights)
        self._longest_state = self._touched_keys = 0
        """Bytes of the longest learner's state, and of all keys in `_touched`."""

    def restore(self, key: bytes, raw: bytes) -> None:
        """Note that the table has a row."""
        at = self._clock.newest(newest_outcome(raw))
        self._eviction.add(context_of(key)[0], key, at)

    def recompute_ages(self) -> None:
        """Judge the age of all contexts by clock records from now on."""
        self.apply_pending()  # outcomes that are still pending carry event times
        self._eviction.recompute_ages(self._clock.newest)
        self.clear_paths()  # each is found again with its next outcome, and its time corrected

    def clear_paths(self) -> None:
        """Find every path again with its next outcome, because a policy or down-weight changed.

        Until then its contexts are published as they were.
        """
        self.paths.clear()
        self._downweighted.clear()

    def path(self, key: ContextKey) -> ContextPath:
        """Return a path; its contexts are loaded or created where they are not cached."""
        return self.paths.get(key) or self._downweighted.get(key) or self._find(key)

    def is_downweighted(self, path: ContextPath) -> bool:
        """Return whether a path was found with a down-weighted context in it."""
        return path.key in self._downweighted

    def end_downweight(self, path: ContextPath) -> None:
        """Cache a path with all others again."""
        self.paths[path.key] = self._downweighted.pop(path.key)

    def expect(self, path: ContextPath) -> None:
        """Prepare a path for an outcome, which the caller then appends to its `pending` list."""
        if not path.pending:
            self.updates.expect(path.pending)
        self.touch(path)

    def touch(self, path: ContextPath) -> None:
        """Note that the rows of a path's contexts change."""
        if path.touched:
            return
        path.touched = True
        self._touched_paths.append(path)
        for _policy, contexts in path.groups:
            for context in contexts:
                self._note(context.row_key, context)

    def touch_context(self, context: Context, offset: int) -> None:
        """Note that a context changed at an offset, after all outcomes so far."""
        self._drain_paths()
        context.offset = offset
        self._note(context.row_key, context)

    def _note(self, key: bytes, touched: Context | int) -> None:
        if key not in self._touched:
            self._touched_keys += len(key)
        self._touched[key] = self._unanswered[key] = touched

    def apply_pending(self) -> None:
        """Learn all pending outcomes."""
        self.updates.apply_pending()

    @property
    def has_new(self) -> bool:
        """Whether there are contexts without a row that `evict_excess` has not counted yet."""
        return bool(self._new)

    def evict_excess(self, tenant: str, at: int, offset: int, budget: ExpiryBudget) -> list[bytes]:
        """Evict a tenant's oldest contexts beyond its limit; return their keys.

        What exceeds the offset's budget stays until the next call. `at`: time (Unix ms) of the
        outcome that made the new contexts, 0 without one.
        """
        for context in self._new:
            newest = self._clock.newest(max(at, context.numbers.at))
            self._eviction.add(tenant, context.row_key, newest)
        self._new.clear()
        excess = self._eviction.excess(tenant, self._newest)
        return self._evict(budget.at(offset).limited(excess), offset)

    def expire(self, clock: int, offset: int, budget: ExpiryBudget) -> int:
        """Evict idle contexts, within the budget; return how many.

        `clock`: time by which they are idle, Unix ms; see `PartitionClock.reached`.
        """
        self.downweights.expire(self._clock.row.clock, offset, budget)
        return len(self._evict(budget.limited(self._eviction.idle(clock, self._newest)), offset))

    def forget(self, holds: Callable[[str, str], bool], offset: int) -> int:
        """Delete the contexts for which `holds(tenant, path)`, and all below; return how many.

        Raises `ValueError` where they are too many for one commit.
        """
        keys = self._matching(holds)
        if forgotten_bytes(keys) > FORGOTTEN_BYTES:
            raise ValueError(
                f"pattern: holds for {len(keys)} contexts of this partition, too many to forget at "
                "one place of the log; name a tenant, or workflow types one by one"
            )
        self._eviction.remove(keys)
        return len(self._evict(keys, offset))

    def forget_some(self, holds: Callable[[str, str], bool], offset: int) -> int:
        """Delete contexts for which `holds(tenant, path)`, as many as fit one commit.

        Of more, the finest go first, so that no context outlives those above it. Returns how many.
        """
        keys = self._matching(holds)
        if forgotten_bytes(keys) > FORGOTTEN_BYTES:
            keys = list(_that_fit(sorted(keys, key=lambda key: (-key.count(b"/"), key))))
        self._eviction.remove(keys)
        return len(self._evict(keys, offset))

    def _matching(self, holds: Callable[[str, str], bool]) -> list[bytes]:
        return self._eviction.matching(lambda _tenant, key: holds(*context_of(key)))

    def _evict(self, keys: Iterable[bytes], offset: int) -> list[bytes]:
        evicted = []
        for key in keys:
            context = self._contexts.pop(key, None)
            if context is not None and context.path_key is not None:
                # No other path holds it: those that end below it were evicted before.
                self.paths.pop(context.path_key, None)
                self._downweighted.pop(context.path_key, None)
            self._note(key, offset)
            evicted.append(key)
        return evicted

    def _newest(self, key: bytes) -> int:
        """Return when a context's newest outcome arrived, Unix ms."""
        self.apply_pending()
        context = self._contexts.get(key)
        if context is None:
            touched = self._touched.get(key)
            context = touched if isinstance(touched, Context) else None
        if context is not None:
            return self._clock.newest(context.numbers.at)
        raw = self._load(key)
        assert raw is not None, "a context that is not cached has a row"
        return self._clock.newest(newest_outcome(raw))

    def _find(self, key: ContextKey) -> ContextPath:
        tenant, workflow_type, *levels = key
        assert tenant is not None
        assert workflow_type is not None
        values = dict(zip(self.levels, levels, strict=True))
        contexts: list[Context] = []
        groups: dict[str, tuple[Policy, list[Context]]] = {}
        for path in context_paths(workflow_type, values.get, self.levels):
            policy = self.policy_of(tenant, path)
            _policy, above = groups.setdefault(spec(policy), (policy, []))
            context = self.context(tenant, path, policy, above[-1] if above else None)
            if self._clock.is_ahead(context.numbers.at):  # the outcome to come has a better time
                context.changing().at = self._clock.row.began
            above.append(context)
            contexts.append(context)
        contexts[-1].path_key = key
        found = ContextPath(key, contexts, list(groups.values()))
        cache = self.paths if self.downweights.depth_in(found) is None else self._downweighted
        cache[key] = found
        return found

    def policy_of(self, tenant: str, path: str) -> Policy:
        """Return the policy that learns in a context."""
        return self._assignments.policy_of(tenant, path) or self._policy

    def known(self, tenant: str, path: str) -> Context | None:
        """Return a context that exists, loaded if necessary; None where there is none."""
        key = context_key(tenant, path)
        if (context := self._contexts.get(key)) is not None:
            return context
        if not path or self._row(key) is None:
            return None
        return self.context(tenant, path, self.policy_of(tenant, path), None)

    def context(self, tenant: str, path: str, policy: Policy, parent: Context | None) -> Context:
        """Return a context in which `policy` learns: cached, loaded, or created below `parent`."""
        key = context_key(tenant, path)
        context = self._contexts.get(key)
        if context is None:
            state = self._initial_state(tenant, policy, parent)
            context = self._contexts[key] = Context(tenant, path, policy, state)
            if (raw := self._row(key)) is None:
                self._new.append(context)
            else:
                context.restore(decode_context(raw))
        if context.learner != spec(policy):
            self.apply_pending()  # what is pending belongs to the policy that it had
            kept = context.state_for(policy)
            state = self._initial_state(tenant, policy, parent) if kept is None else kept
            context.changing().state = state
            context.follow(policy)
        size = 8 * len(context.numbers.state) + 4 * len(context.learner)
        self._longest_state = max(self._longest_state, size)
        return context

    def _row(self, key: bytes) -> bytes | None:
        """Return a context's row in the table, unless it was deleted."""
        raw = None if isinstance(self._touched.get(key), int) else self._load(key)
        return None if raw is None or is_deleted(raw) else raw

    def _initial_state(self, tenant: str, policy: Policy, parent: Context | None) -> State:
        """Return the state of a new context: from its parent, else the tenant's default."""
        if parent is not None:
            self.apply_pending()
            return policy.begin(parent.numbers.state)
        default = self._defaults.state_of(tenant, policy)
        return policy.initial() if default is None else default

    @property
    def touched_bytes(self) -> int:
        """Upper bound of the bytes of the rows that changed since the last `drain`."""
        return self.bytes_of(len(self._touched), self._touched_keys)

    def bytes_of(self, rows: int, keys: int) -> int:
        """Return an upper bound of the bytes of so many rows, whose keys have `keys` bytes."""
        return keys + rows * (self._longest_state + _ROW_BYTES)

    def answers(self) -> dict[bytes, PublishedThreshold]:
        """Return, by row key, the thresholds that changed since the last `answers` or `drain`."""
        self.apply_pending()
        self._drain_paths()
        found = {key: self._answer(key, each) for key, each in self._unanswered.items()}
        self._unanswered.clear()
        return found

    def _answer(self, key: bytes, touched: Context | int) -> PublishedThreshold:
        if isinstance(touched, int):
            return threshold_from_row(key, deleted(self._epoch, touched))
        return answer(
            touched.tenant, touched.path, (self._epoch, touched.offset), touched.policy,
            touched.learner, touched.thresholds(), touched.numbers,
        )  # fmt: skip

    def drain(self) -> tuple[list[tuple[bytes, bytes]], Published, Published]:
        """Return the changed rows, what `answers` returns, and the thresholds that moved.

        Those moved since the last `drain`.
        """
        rows, moved, found = [], [], self.answers()
        for key, touched in self._touched.items():
            if isinstance(touched, int):
                rows.append((key, deleted(self._epoch, touched)))
            else:
                rows.append((key, touched.row(self._epoch)))
                if (thresholds := touched.thresholds()) == touched.published:
                    continue
                touched.published = thresholds
            moved.append(found.get(key) or self._answer(key, touched))
        self._touched.clear()
        self._touched_keys = 0
        if max(len(self._contexts), len(self.paths)) > self._most:
            self._contexts.clear()
            self.clear_paths()
        return rows, list(found.values()), moved

    def _drain_paths(self) -> None:
        for path in self._touched_paths:
            path.drained()
        self._touched_paths.clear()
