"""Collects evidence of workflow types and merges it into a default for each tenant. Pure.

Every partition has an `EvidenceCollector`, which sends evidence of its tenants' workflow types to
partition 0. There, the `DefaultMerger` merges all evidence of a tenant into a default for every
partition. Both are given the rows that take effect, and what they send follows from the rows at an
offset, so two processes that own a partition at once cannot disagree. Both send again what may not
have arrived, and otherwise only what changed noticeably.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Final, Generic, TypeVar

from headstart.events.schema import new_id
from headstart.keys import SEPARATOR
from learners.policy import Policy, State, spec
from processing.control.learned_defaults import decode_evidence, readable
from processing.control.learner_assignments import LearnerAssignments, named_policy
from processing.state.rows import (
    CONTEXT,
    CONTROL,
    DEFAULT,
    EVIDENCE,
    PARTITION_KEY,
    context_of,
    decode_context,
    is_deleted,
    outcomes_in,
    version,
)
from topics.control.messages import Default, DefaultEvidence, LearnedState, TypeEvidence

MIN_OUTCOMES: Final = 20
"""Outcomes that a workflow type needs to count."""
MAX_TYPES: Final = 16
"""Most workflow types of a tenant and partition in the evidence: those with most outcomes."""
NOTICEABLE: Final = 0.01
"""By how much a threshold has to change to be sent again."""
RESEND_AFTER_S: Final = 60.0
"""Shortest time between two messages about the same tenant."""
MAX_TENANTS: Final = 20
"""Most tenants in one call of `due`."""
_STAKES: Final = ((0.0, 0.0), (1.0, 1.0), (4.0, 1.0), (1.0, 4.0))

T = TypeVar("T")


@dataclass(frozen=True)
class ReportTuning:
    """When evidence and defaults are sent."""

    min_outcomes: int = MIN_OUTCOMES
    again_s: float = RESEND_AFTER_S
    every_change: bool = False
    """Whether every change is sent, however small."""


class EvidenceCollector:
    """Collects the evidence of a partition's workflow types from their rows."""

    def __init__(
        self,
        partition: int,
        now_s: Callable[[], float],
        new_id: Callable[[int], str] = new_id,
        tuning: ReportTuning = ReportTuning(),
    ) -> None:
        self._partition, self._new_id, self._tuning = partition, new_id, tuning
        self._rows: dict[str, dict[str, bytes]] = {}
        self._place = 0, -1
        self._changes: _Changes[tuple[TypeEvidence, ...]] = _Changes(now_s, tuning.again_s)

    def note(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Note rows that took effect or were restored."""
        for key, raw in rows:
            if key[:1] == CONTEXT:
                if (names := _type_of(key)) is None:
                    continue
                tenant, path = names
                types = self._rows.setdefault(tenant, {})
                if is_deleted(raw):
                    types.pop(path, None)
                    self._changes.changed(tenant)
                    continue
                try:
                    outcomes = outcomes_in(raw)
                except struct.error:
                    continue
                types[path] = raw
                if self._changes.was_sent(tenant) or outcomes >= self._tuning.min_outcomes:
                    self._changes.changed(tenant)
            elif key == PARTITION_KEY:
                self._place = version(raw)

    def restored(self) -> None:
        """Check every tenant once, because it is not known what an earlier owner sent last.

        That may include contexts that were deleted since.
        """
        for tenant in self._rows:
            self._changes.changed(tenant)

    def due(self, now_ms: int) -> list[DefaultEvidence]:
        """Return the evidence to send now; call `sent` when it was sent."""
        found = self._changes.due(self._known, ne if self._tuning.every_change else _evidence_moved)
        return [
            DefaultEvidence(
                self._new_id(now_ms), now_ms, tenant, self._partition, *self._place, known
            )
            for tenant, known in found
        ]

    def sent(self, evidence: DefaultEvidence) -> None:
        """Note that it was sent."""
        self._changes.sent(evidence.tenant, evidence.known)
        if not self._rows.get(evidence.tenant):
            self._rows.pop(evidence.tenant, None)

    def _known(self, tenant: str) -> tuple[TypeEvidence, ...]:
        known = []
        for path, raw in self._rows.get(tenant, {}).items():
            try:
                row = decode_context(raw)
            except (struct.error, ValueError):  # a row that no worker wrote
                continue
            if row.outcomes >= self._tuning.min_outcomes:
                known.append(
                    TypeEvidence(row.learner, row.policy_version, row.state, row.outcomes, path)
                )
        known.sort(key=lambda each: (-each.outcomes, each.path))
        return tuple(known[:MAX_TYPES])


class DefaultMerger:
    """Merges the evidence of all partitions into defaults, in partition 0.

    `policy`: of contexts without a learner choice.
    """

    def __init__(
        self,
        policy: Policy,
        now_s: Callable[[], float],
        new_id: Callable[[int], str] = new_id,
        tuning: ReportTuning = ReportTuning(),
    ) -> None:
        self._policy, self._new_id, self._tuning = policy, new_id, tuning
        self._choices = LearnerAssignments(0)
        self._evidence: dict[str, dict[int, DefaultEvidence]] = {}
        self._place = 0, -1
        self._changes: _Changes[LearnedState | None] = _Changes(now_s, tuning.again_s)

    def note(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Note rows that took effect or were restored."""
        for key, raw in rows:
            if is_deleted(raw):
                continue  # deleted by a rebuild
            kind = key[:1]
            if kind == EVIDENCE:
                evidence = decode_evidence(raw)
                self._evidence.setdefault(evidence.tenant, {})[evidence.partition] = evidence
                self._changes.changed(evidence.tenant)
            elif kind == DEFAULT:
                self._changes.changed(context_of(key)[0])
            elif kind == CONTROL:
                self._choices.restore(key, raw)
                for tenant in self._evidence:
                    self._changes.changed(tenant)
            elif key == PARTITION_KEY:
                self._place = version(raw)

    def due(self, now_ms: int) -> list[Default]:
        """Return the defaults to send now; call `sent` when every partition has it."""
        found = self._changes.due(self._merged, ne if self._tuning.every_change else _default_moved)
        return [
            Default(self._new_id(now_ms), now_ms, tenant, *self._place, learned)
            for tenant, learned in found
        ]

    def sent(self, default: Default) -> None:
        """Note that it was sent."""
        self._changes.sent(default.tenant, default.learned)

    def _merged(self, tenant: str) -> LearnedState | None:
        policy = self._choices.policy_of(tenant, "") or self._policy
        of_each = sorted(self._evidence.get(tenant, {}).items())
        known = readable((each for _, evidence in of_each for each in evidence.known), spec(policy))
        if not known:
            return None
        state = policy.pooled([state for state, _ in known], [float(n) for _, n in known])
        return LearnedState(spec(policy), policy.version, state, sum(n for _, n in known))


class _Changes(Generic[T]):
    """Tenants with possible changes, and what was last sent about each."""

    def __init__(self, now_s: Callable[[], float], again_s: float) -> None:
        self._now_s, self._again_s = now_s, again_s
        self._changed: dict[str, None] = {}
        self._sent: dict[str, tuple[float, T]] = {}

    def changed(self, tenant: str) -> None:
        self._changed[tenant] = None

    def due(
        self, message_of: Callable[[str], T], moved: Callable[[T, T], bool]
    ) -> list[tuple[str, T]]:
        """Return (tenant, message) of a few tenants, none of them too soon after its last one."""
        now = self._now_s()
        found: list[tuple[str, T]] = []
        for tenant in list(self._changed):
            if len(found) >= MAX_TENANTS:
                break
            last = self._sent.get(tenant)
            if last is not None and now < last[0] + self._again_s:
                continue
            message = message_of(tenant)
            if last is None or moved(last[1], message):
                found.append((tenant, message))
            else:
                del self._changed[tenant]
        return found

    def sent(self, tenant: str, message: T) -> None:
        """Note what was sent; changes since `due` are checked later."""
        self._sent[tenant] = self._now_s(), message

    def was_sent(self, tenant: str) -> bool:
        """Return whether anything was sent about a tenant."""
        return tenant in self._sent


_SEPARATOR: Final = SEPARATOR.encode()


def _type_of(key: bytes) -> tuple[str, str] | None:
    """Return (tenant, path) from the row key of a workflow type; None for other contexts.

    None also for keys that no worker writes: a table may have got them from another program.
    """
    begin = key.find(_SEPARATOR)
    # Only a workflow type has no part below it; a tenant may have any character.
    if begin < 0 or key.find(b"/", begin) >= 0:
        return None
    try:
        return context_of(key)
    except UnicodeDecodeError:
        return None


def _evidence_moved(before: Sequence[TypeEvidence], now: Sequence[TypeEvidence]) -> bool:
    """Return whether workflow types or thresholds changed, or one has twice as many outcomes."""
    last = {each.path: each for each in before}
    if last.keys() != {each.path for each in now}:
        return True
    return any(
        each.outcomes >= 2 * last[each.path].outcomes or _default_moved(last[each.path], each)
        for each in now
    )


def _default_moved(before: LearnedState | None, now: LearnedState | None) -> bool:
    """Return whether two states give noticeably different thresholds, for any of some stakes."""
    if before is None or now is None or before.learner != now.learner:
        return before is not now
    policy = named_policy(now.learner)
    if policy is None:
        return False
    one, other = (_answers(policy, policy.migrated(s.version, s.state)) for s in (before, now))
    return any(abs(a - b) > NOTICEABLE for a, b in zip(one, other, strict=False))


def _answers(policy: Policy, state: State | None) -> list[float]:
    if state is None:
        return []
    return [policy.thresholds(state).suggest] + [policy.threshold(state, *each) for each in _STAKES]
