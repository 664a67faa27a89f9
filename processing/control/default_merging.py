"""From what partitions learned of workflow types to a default for each tenant. Pure.

Two parts, both told of the rows that take effect. `EvidenceCollector`, of every partition: what it
knows of a tenant's workflow types is evidence, for the first partition. `DefaultMerger`, of the
first one: all evidence of a tenant makes its default, for every partition. What either says follows
from the rows at an offset, so two processes that hold a partition at once cannot disagree about it.
Both say again what they are not sure that somebody heard, and else only what has moved.
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
from topics.control.messages import Default, Evidence, LearnedState, TypeEvidence

LEAST: Final = 20
"""Outcomes from which on a workflow type counts."""
MOST: Final = 16
"""Workflow types of a tenant and partition that are evidence: those of most outcomes."""
NOTICEABLE: Final = 0.01
"""By how much an answer has to differ to be said again."""
AGAIN_S: Final = 60.0
"""How long the same tenant is left alone after that."""
AT_ONCE: Final = 20
"""Most tenants of whom something is said at one look."""
_STAKES: Final = ((0.0, 0.0), (1.0, 1.0), (4.0, 1.0), (1.0, 4.0))

T = TypeVar("T")


@dataclass(frozen=True)
class ReportTuning:
    """When evidence and defaults are sent."""

    least: int = LEAST
    again_s: float = AGAIN_S
    every_change: bool = False
    """Whether every change is sent, however small."""


class EvidenceCollector:
    """The rows of a partition's workflow types, and what was said of them."""

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
        self._news: _News[tuple[TypeEvidence, ...]] = _News(now_s, tuning.again_s)

    def note(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take note of rows that took effect, or are restored."""
        for key, raw in rows:
            if key[:1] == CONTEXT:
                if (names := _type_of(key)) is None:
                    continue
                tenant, path = names
                types = self._rows.setdefault(tenant, {})
                if is_deleted(raw):
                    types.pop(path, None)
                    self._news.changed(tenant)
                    continue
                try:
                    outcomes = outcomes_in(raw)
                except struct.error:
                    continue
                types[path] = raw
                if self._news.spoken(tenant) or outcomes >= self._tuning.least:
                    self._news.changed(tenant)
            elif key == PARTITION_KEY:
                self._place = version(raw)

    def restored(self) -> None:
        """Look at every tenant once: what an earlier owner said last, nobody knows here.

        It may have said what has gone since, and is not enough any more to be said by itself.
        """
        for tenant in self._rows:
            self._news.changed(tenant)

    def due(self, now_ms: int) -> list[Evidence]:
        """Return what is to be said now; `sent` is to be called when it was."""
        found = self._news.due(self._known, ne if self._tuning.every_change else _evidence_moved)
        return [
            Evidence(self._new_id(now_ms), now_ms, tenant, self._partition, *self._place, known)
            for tenant, known in found
        ]

    def sent(self, evidence: Evidence) -> None:
        """Note that it was said."""
        self._news.said(evidence.tenant, evidence.known)
        if not self._rows.get(evidence.tenant):
            self._rows.pop(evidence.tenant, None)

    def _known(self, tenant: str) -> tuple[TypeEvidence, ...]:
        known = []
        for path, raw in self._rows.get(tenant, {}).items():
            try:
                row = decode_context(raw)
            except (struct.error, ValueError):  # of a row that no worker wrote
                continue
            if row.outcomes >= self._tuning.least:
                known.append(
                    TypeEvidence(row.learner, row.policy_version, row.state, row.outcomes, path)
                )
        known.sort(key=lambda each: (-each.outcomes, each.path))
        return tuple(known[:MOST])


class DefaultMerger:
    """What the first partition knows of every tenant, and the default that was said of it.

    `policy`: of contexts that no choice names another one for.
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
        self._evidence: dict[str, dict[int, Evidence]] = {}
        self._place = 0, -1
        self._news: _News[LearnedState | None] = _News(now_s, tuning.again_s)

    def note(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take note of rows that took effect, or are restored."""
        for key, raw in rows:
            if is_deleted(raw):
                continue  # a rebuild found that it never was
            kind = key[:1]
            if kind == EVIDENCE:
                evidence = decode_evidence(raw)
                self._evidence.setdefault(evidence.tenant, {})[evidence.partition] = evidence
                self._news.changed(evidence.tenant)
            elif kind == DEFAULT:
                self._news.changed(context_of(key)[0])
            elif kind == CONTROL:
                self._choices.restore(key, raw)
                for tenant in self._evidence:
                    self._news.changed(tenant)
            elif key == PARTITION_KEY:
                self._place = version(raw)

    def due(self, now_ms: int) -> list[Default]:
        """Return what is to be said now; `sent` is to be called when every partition has it."""
        found = self._news.due(self._merged, ne if self._tuning.every_change else _default_moved)
        return [
            Default(self._new_id(now_ms), now_ms, tenant, *self._place, learned)
            for tenant, learned in found
        ]

    def sent(self, default: Default) -> None:
        """Note that it was said."""
        self._news.said(default.tenant, default.learned)

    def _merged(self, tenant: str) -> LearnedState | None:
        policy = self._choices.policy_of(tenant, "") or self._policy
        of_each = sorted(self._evidence.get(tenant, {}).items())
        known = readable((each for _, evidence in of_each for each in evidence.known), spec(policy))
        if not known:
            return None
        state = policy.pooled([state for state, _ in known], [float(n) for _, n in known])
        return LearnedState(spec(policy), policy.version, state, sum(n for _, n in known))


class _News(Generic[T]):
    """Of which tenants there is something to say, and what was said last."""

    def __init__(self, now_s: Callable[[], float], again_s: float) -> None:
        self._now_s, self._again_s = now_s, again_s
        self._changed: dict[str, None] = {}
        self._said: dict[str, tuple[float, T]] = {}

    def changed(self, tenant: str) -> None:
        self._changed[tenant] = None

    def due(self, says: Callable[[str], T], moved: Callable[[T, T], bool]) -> list[tuple[str, T]]:
        """Return (tenant, what to say), a few tenants at a time and none too soon again."""
        now = self._now_s()
        found: list[tuple[str, T]] = []
        for tenant in list(self._changed):
            if len(found) >= AT_ONCE:
                break
            last = self._said.get(tenant)
            if last is not None and now < last[0] + self._again_s:
                continue
            what = says(tenant)
            if last is None or moved(last[1], what):
                found.append((tenant, what))
            else:
                del self._changed[tenant]
        return found

    def said(self, tenant: str, what: T) -> None:
        """Note what was said; what has changed since it was asked for is looked at later."""
        self._said[tenant] = self._now_s(), what

    def spoken(self, tenant: str) -> bool:
        """Return whether anything was said."""
        return tenant in self._said


_SEPARATOR: Final = SEPARATOR.encode()


def _type_of(key: bytes) -> tuple[str, str] | None:
    """Return (tenant, path) of the row key of a workflow type; None of another context.

    Also of a key that no worker writes: a table may have got it from somebody else.
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
    """Return whether there are other workflow types, or answers that moved or are twice as sure."""
    last = {each.path: each for each in before}
    if last.keys() != {each.path for each in now}:
        return True
    return any(
        each.outcomes >= 2 * last[each.path].outcomes or _default_moved(last[each.path], each)
        for each in now
    )


def _default_moved(before: LearnedState | None, now: LearnedState | None) -> bool:
    """Return whether two states answer noticeably otherwise, for any of some stakes."""
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
