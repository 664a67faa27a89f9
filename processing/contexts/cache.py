"""The contexts of one partition in memory: found per event, updated per outcome, written per batch.

A cache over the table's rows: whatever it drops can be loaded again, because every row touched is
in the commit before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from headstart.keys import context_paths
from learners.outcome import Outcome
from learners.policy import Policy, State, spec
from processing.config import LearningConfig
from processing.contexts import context as context_module
from processing.contexts.context import Context, ContextPath
from processing.contexts.downweighting import Downweights
from processing.contexts.eviction import EvictionIndex, seeded_at
from processing.contexts.levels import ContextKey, place_getter
from processing.contexts.pending_updates import PendingUpdates
from processing.contexts.thresholds import answer, threshold_from_row
from processing.control.learned_defaults import LearnedDefaults, plant, seeded_below
from processing.control.learner_assignments import LearnerAssignments
from processing.state.chunking import ROW_EXTRA
from processing.state.clock import PartitionClock
from processing.state.counters import OutcomeRow, count_feedback, outcome_row
from processing.state.expiry_budget import ExpiryBudget
from processing.state.rows import (
    context_key,
    context_of,
    decode_context,
    deleted,
    is_deleted,
    newest_outcome,
)
from topics.control.messages import Downweight, Seeded
from topics.schema.json_schema import PublishedThreshold

Published = list[PublishedThreshold]
FORGOTTEN_BYTES: Final = 6_000_000
"""Of the rows that say so of contexts forgotten at one offset: they must fit one commit."""
_ROW_BYTES: Final = 288
"""Bytes of a row without its key and its learner's state, and what a record batch adds to it."""


class ContextCache:
    """The contexts of one partition. What they are told of they learn when somebody looks."""

    def __init__(
        self,
        rules: LearningConfig,
        choices: LearnerAssignments,
        defaults: LearnedDefaults,
        clock: PartitionClock,
        epoch: int,
        load: Callable[[bytes], bytes | None],
        most: int,
    ) -> None:
        """`most`: contexts that stay in memory from one `drain` to the next."""
        self._policy, self._choices, self._defaults = rules.policy, choices, defaults
        self.levels = tuple(rules.levels)
        self._epoch, self.clock = epoch, clock
        self._load, self._most = load, most
        self.place_of = place_getter(rules.levels)
        """Returns the place of an event's context: its key in `chains`."""
        self.chains: dict[ContextKey, ContextPath] = {}
        """Those known; of an event whose partition this is not, there is none."""
        self._held: dict[ContextKey, ContextPath] = {}
        """Those of users who are weighed down, which are in no other cache."""
        self.weighings = Downweights(epoch)
        self._contexts: dict[bytes, Context] = {}
        self._touched: dict[bytes, Context | int] = {}
        """What changed since the last `drain`: contexts, and the offsets at which others went."""
        self._unanswered: dict[bytes, Context | int] = {}
        """The same since the last `answers`, or `drain`."""
        self._idle_ms = rules.idle_ms
        self._residence = EvictionIndex(rules.idle_ms, rules.most_contexts)
        self.new: list[Context] = []
        """Those without a row yet: where an outcome makes any, `bound` is to be called."""
        self._touched_chains: list[ContextPath] = []
        self.lessons = PendingUpdates(rules.weights)
        self._feedback_weight = rules.feedback_weight
        self._longest_state = self._touched_keys = 0
        """Bytes of the longest learner's state, and of all keys of what is touched."""

    def restore(self, key: bytes, raw: bytes) -> None:
        """Take up one row of the table."""
        at = self.clock.newest(newest_outcome(raw))
        self._residence.add(context_of(key)[0], key, at)

    def judge_again(self) -> None:
        """Ask anew how old contexts are: the partition's clock goes by clock records now."""
        self.settle()  # what was told before says times of events
        self._residence.judge_again(self.clock.newest)
        self.choose_again()  # each is found again with its next outcome, and its time put right

    def choose_again(self) -> None:
        """Ask anew which policy learns where: the choices have changed.

        A context follows with its next outcome; until then it is served as it was.
        """
        self.chains.clear()
        self._held.clear()

    def weigh(self, said: Downweight, clock: int, offset: int) -> None:
        """Have outcomes below a context count in part above it. Raises `ValueError`."""
        if self.weighings.apply(said, clock, offset):
            self.choose_again()

    def learn(self, place: ContextKey, outcome: Outcome, offset: int) -> None:
        """Apply one outcome at every level of its context, coarse to fine."""
        chain = self._chain(place)
        told = outcome_row(outcome, chain, at=self.clock.heard(outcome.timestamp))
        at = self.clock.now(outcome.timestamp)
        self._weighed(chain, at, offset, lambda: self.tell(told, offset))

    def tell(self, told: OutcomeRow, offset: int) -> None:
        """Apply one outcome at every level of a chain (`Runs` does so itself)."""
        chain: ContextPath = told[-1]
        self.ready(chain)
        chain.lessons.append(told)
        chain.offset = offset

    def feedback(self, place: ContextKey, outcome: Outcome, offset: int) -> None:
        """Apply a user's verdict on a prediction, which counts as `feedback_weight` outcomes."""
        chain = self._chain(place)
        told = outcome_row(outcome, chain, at=self.clock.heard(outcome.timestamp), verdict=True)
        at = self.clock.now(outcome.timestamp)
        for _ in range(self._feedback_weight):
            self._weighed(chain, at, offset, lambda: self.tell(told, offset))
        chain.offset = offset
        for context in chain.contexts:
            count_feedback(context.changing().counts, accepted=outcome.correct)

    def _chain(self, place: ContextKey) -> ContextPath:
        return self.chains.get(place) or self._held.get(place) or self._find(place)

    def _weighed(self, chain: ContextPath, at: int, offset: int, teach: Callable[[], None]) -> None:
        """Teach a chain; of one that is weighed down those above only where it is the turn."""
        above: Sequence[Context] = ()
        if chain.place in self._held:
            above = self.weighings.above(chain, at, offset)
            if self.weighings.weighed(chain) is None:
                self.chains[chain.place] = self._held.pop(chain.place)
        if not above:
            teach()
            return
        self.settle()
        with context_module.without_learning(above):
            teach()
            self.settle()

    def ready(self, chain: ContextPath) -> None:
        """Make a chain ready to be told of an outcome, which then has to come."""
        if not chain.lessons:
            self.lessons.expect(chain.lessons)
        self.touch(chain)

    def touch(self, chain: ContextPath) -> None:
        """Note that the rows of a chain's contexts change."""
        if chain.touched:
            return
        chain.touched = True
        self._touched_chains.append(chain)
        for _policy, contexts in chain.groups:
            for context in contexts:
                self._note(context.key, context)

    def _note(self, key: bytes, touched: Context | int) -> None:
        if key not in self._touched:
            self._touched_keys += len(key)
        self._touched[key] = self._unanswered[key] = touched

    def settle(self) -> None:
        """Have contexts learn what they were told."""
        self.lessons.apply_pending()

    def bound(self, tenant: str, at: int, offset: int, room: ExpiryBudget) -> int:
        """Let the oldest contexts go where a tenant has too many; return how many went.

        Those that find no room stay until the tenant has a new one again.
        `at`: time, Unix ms, of an outcome that those without a row were told, 0 of none.
        """
        for context in self.new:
            newest = self.clock.newest(max(at, context.numbers.at))
            self._residence.add(tenant, context.key, newest)
        self.new.clear()
        excess = self._residence.excess(tenant, self._newest)
        return self._let_go(room.limited(excess), offset)

    def expire(self, clock: int, offset: int, room: ExpiryBudget) -> int:
        """Let idle contexts go, while there is room; return how many went.

        `clock`: by which idle ones are judged, Unix ms; see `PartitionClock.reached`.
        """
        self.weighings.expire(self.clock.row.clock, offset, room)
        return self._let_go(room.limited(self._residence.idle(clock, self._newest)), offset)

    def forget(self, holds: Callable[[str, str], bool], offset: int) -> int:
        """Let contexts go that (tenant, path) hold for, and so all below; return how many went.

        Raises `ValueError` where they are too many for one commit.
        """
        keys = self._residence.matching(lambda _tenant, key: holds(*context_of(key)))
        if sum(len(key) + ROW_EXTRA for key in keys) > FORGOTTEN_BYTES:
            raise ValueError(
                f"pattern: holds for {len(keys)} contexts of this partition, too many to forget at "
                "one place of the log; name a tenant, or workflow types one by one"
            )
        self._residence.remove(keys)
        return self._let_go(keys, offset)

    def seed(self, tenant: str, at: int, seeds: Sequence[Seeded], offset: int) -> None:
        """Have contexts stand as said; `bound` is to be called. Raises `ValueError`, nothing done.

        A context is no younger than the one above it, which has to be there, or to come before it.
        """
        self.settle()
        states = []
        for place, each in enumerate(seeds):
            policy = self._choices.policy_of(tenant, each.path) or self._policy
            known = partial(self._known, tenant)
            states.append((policy, seeded_below(seeds, place, policy, known)))
        self._drain_chains()
        for each, (policy, state) in zip(seeds, states, strict=True):
            above = self._known(tenant, each.path.rpartition("/")[0])
            context = self._context(tenant, each.path, policy, above)
            numbers = context.changing()
            plant(numbers, each, state)
            own = seeded_at(each.at, self.clock.now(at), self.clock.latest(at), self._idle_ms)
            newest = own if above is None else min(own, above.numbers.at)
            numbers.at = newest if self.clock.is_ahead(numbers.at) else max(numbers.at, newest)
            context.offset = offset
            self._note(context.key, context)

    def _known(self, tenant: str, path: str) -> Context | None:
        """Return a context that is there, loaded where need be."""
        key = context_key(tenant, path)
        if (context := self._contexts.get(key)) is not None:
            return context
        raw = None if isinstance(self._touched.get(key), int) else self._load(key)
        if not path or raw is None or is_deleted(raw):
            return None
        policy = self._choices.policy_of(tenant, path) or self._policy
        return self._context(tenant, path, policy, None)

    def _let_go(self, keys: Iterable[bytes], offset: int) -> int:
        count = 0
        for key in keys:
            context = self._contexts.pop(key, None)
            if context is not None and context.place is not None:
                # No other chain holds it: those that end below it have gone before.
                self.chains.pop(context.place, None)
                self._held.pop(context.place, None)
            self._note(key, offset)
            count += 1
        return count

    def _newest(self, key: bytes) -> int:
        """Return when a context's newest outcome arrived."""
        self.settle()
        context = self._contexts.get(key)
        if context is None:
            touched = self._touched.get(key)
            context = touched if isinstance(touched, Context) else None
        if context is not None:
            return self.clock.newest(context.numbers.at)
        raw = self._load(key)
        assert raw is not None, "a context without a row that is in no cache"
        return self.clock.newest(newest_outcome(raw))

    def _find(self, place: ContextKey) -> ContextPath:
        tenant, workflow_type, *levels = place
        assert tenant is not None
        assert workflow_type is not None
        values = dict(zip(self.levels, levels, strict=True))
        contexts: list[Context] = []
        chains: dict[str, tuple[Policy, list[Context]]] = {}
        for path in context_paths(workflow_type, values.get, self.levels):
            policy = self._choices.policy_of(tenant, path) or self._policy
            _policy, above = chains.setdefault(spec(policy), (policy, []))
            context = self._context(tenant, path, policy, above[-1] if above else None)
            if self.clock.is_ahead(
                context.numbers.at
            ):  # the outcome that is to come says a better one
                context.changing().at = self.clock.row.began
            above.append(context)
            contexts.append(context)
        contexts[-1].place = place
        found = ContextPath(place, contexts, list(chains.values()))
        weighed = self.weighings.weighed(found) is not None
        (self._held if weighed else self.chains)[place] = found
        return found

    def _context(self, tenant: str, path: str, policy: Policy, parent: Context | None) -> Context:
        """Return a context as `policy` goes on with it."""
        key = context_key(tenant, path)
        context = self._contexts.get(key)
        if context is None:
            fresh = self._fresh(tenant, policy, parent)
            context = self._contexts[key] = Context(tenant, path, policy, fresh)
            raw = None if isinstance(self._touched.get(key), int) else self._load(key)
            if raw is None or is_deleted(raw):
                self.new.append(context)
            else:
                context_module.restore_context(context, decode_context(raw))
        if context.learner != spec(policy):
            self.settle()  # what it was told is for the learner that it had
            state = context_module.handed_over(context, policy)
            fresh = self._fresh(tenant, policy, parent) if state is None else state
            context.changing().state = fresh
            context.follow(policy)
        size = 8 * len(context.numbers.state) + 4 * len(context.learner)
        self._longest_state = max(self._longest_state, size)
        return context

    def _fresh(self, tenant: str, policy: Policy, parent: Context | None) -> State:
        """Return the state in which a context begins: below its parent, else the default's."""
        if parent is not None:
            self.settle()
            return policy.begin(parent.numbers.state)
        default = self._defaults.state_of(tenant, policy)
        return policy.initial() if default is None else default

    @property
    def touched_bytes(self) -> int:
        """Bytes, at the most, of the rows that changed since the last `drain`."""
        return self.bytes_of(len(self._touched), self._touched_keys)

    def bytes_of(self, rows: int, keys: int) -> int:
        """Return the bytes of so many rows, whose keys have so many, at the most."""
        return keys + rows * (self._longest_state + _ROW_BYTES)

    def answers(self) -> dict[bytes, PublishedThreshold]:
        """Return, by key, the thresholds of what changed since the last `answers`, or `drain`."""
        self.settle()
        self._drain_chains()
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
        """Return what changed: rows, what `answers` would, and the thresholds that moved."""
        rows, moved, found = [], [], self.answers()
        for key, touched in self._touched.items():
            if isinstance(touched, int):
                rows.append((key, deleted(self._epoch, touched)))
            else:
                rows.append((key, touched.row(self._epoch)))
                if (served := touched.thresholds()) == touched.served:
                    continue
                touched.served = served
            moved.append(found.get(key) or self._answer(key, touched))
        self._touched.clear()
        self._touched_keys = 0
        if max(len(self._contexts), len(self.chains)) > self._most:
            self._contexts.clear()
            self.chains.clear()
            self._held.clear()
        return rows, list(found.values()), moved

    def _drain_chains(self) -> None:
        for chain in self._touched_chains:
            chain.drained()
        self._touched_chains.clear()
