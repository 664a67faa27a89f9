"""Detects notices in the values of `headstart.thresholds`. Pure.

The state of a context and its next value determine the next state and the notices, so the notices
of a partition follow from its records, however they are batched. The threshold agent does no extra
work. Where it lags, or the topic was compacted, differences of counters become coarser. The
detectors are `learners.context_detectors` and `learners.flood_detector`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote

from learners.context_detectors import (
    BLOCK,
    Aim,
    DetectorState,
    Evidence,
    OutcomeCounts,
    begin,
    detect,
    follows,
    is_block,
)
from learners.flood_detector import detect_flood
from learners.policy import TARGET
from processing.control.learner_assignments import named_policy
from topics.notices.messages import Kind, Notice, notice_id
from topics.schema.json_schema import PublishedThreshold

Key = tuple[str, str]
"""Tenant and path of a context."""

_USER: Final = "user_id="
_LAYOUT: Final = struct.Struct("<B10qB15d")
_VERSION: Final = 1
_LARGEST: Final = 2**62
_LONGEST: Final = 2_048
"""Most bytes of tenant and path: a longer key does not fit an index of Postgres."""


class NoticeState(NamedTuple):
    """The newest value seen of a context, and its detectors' state; None before the first block."""

    epoch: int = 0
    offset: int = -1
    outcomes: int = 0
    state: DetectorState | None = None


@dataclass
class DetectedNotices:
    """The result of some values.

    `changed`: by context the state to be stored, None where the context was deleted; `notices`:
    each with its partition.
    """

    known: dict[Key, NoticeState] = field(default_factory=dict)
    changed: dict[Key, bytes | None] = field(default_factory=dict)
    notices: list[tuple[int, Notice]] = field(default_factory=list)


def needed(values: Iterable[tuple[int, PublishedThreshold]]) -> set[Key]:
    """Return the contexts whose states are needed to process some values."""
    keys = set()
    for _partition, value in values:
        keys.add((value.tenant, value.path))
        if (above := _above_user(value.path)) is not None:
            keys.add((value.tenant, above))
    return keys


def watchable(value: PublishedThreshold) -> bool:
    """Return whether a value is of a context, and valid.

    Not a learned default, which has no outcomes of its own, nor what no database can hold.
    """
    name = f"{value.tenant}{value.path}"
    if not value.workflow_type or "\0" in name + value.workflow_type:
        return False
    if len(name.encode()) > _LONGEST:
        return False
    numbers = (value.epoch, value.offset, value.outcomes, value.at, *_numbers(value))
    sane = min(numbers) >= -1 and max(numbers) < _LARGEST and 0.0 <= value.speculate <= 2.0
    return sane and (value.deleted or value.counts is not None)


def take(
    values: Iterable[tuple[int, PublishedThreshold]], known: Mapping[Key, NoticeState]
) -> DetectedNotices:
    """Process values, each with its partition, in order of their offsets."""
    found = DetectedNotices()
    for partition, value in values:
        key = value.tenant, value.path
        before = found.known.get(key) or known.get(key) or NoticeState()
        if (value.epoch, value.offset) <= (before.epoch, before.offset):
            continue  # a duplicate, or from a late writer
        state = None if value.deleted else _step(partition, value, before, known, found)
        if state is not before.state:
            found.changed[key] = None if state is None else encode_state(state)
        outcomes = 0 if value.deleted else value.outcomes
        found.known[key] = NoticeState(value.epoch, value.offset, outcomes, state)
    return found


def _step(
    partition: int,
    value: PublishedThreshold,
    before: NoticeState,
    known: Mapping[Key, NoticeState],
    found: DetectedNotices,
) -> DetectorState | None:
    """Return the state of a context after a value; add notices to `found`."""
    counts = value.counts
    assert counts is not None, "checked by `watchable`"
    path = _above_user(value.path)
    upper = None
    if path is not None:
        upper = found.known.get((value.tenant, path)) or known.get((value.tenant, path))
    seen = OutcomeCounts(
        value.outcomes,
        counts.explicit_right + counts.suggestion_right + counts.speculative_right,
        counts.speculative,
        counts.speculative_right,
        counts.confidence,
        value.at,
        max(upper.outcomes, value.outcomes) if upper else 0,
    )
    state = before.state
    if state is None:  # no state is stored before the first block
        state = DetectorState() if 0 < before.outcomes < BLOCK else begin(seen)
    if seen.outcomes < state.seen.outcomes:
        return begin(seen)
    if not is_block(state, seen):
        return state if state.seen.outcomes or before.state else None
    if not follows(state, seen):
        return begin(seen)
    after, signals = detect(state, seen, _aim(value))
    for signal in signals:
        found.notices.append((partition, _notice(value, signal.kind, signal.evidence)))
    if upper is not None:
        after = _flooded(partition, value, state, after, upper, found)
    return after


def _flooded(
    partition: int,
    value: PublishedThreshold,
    state: DetectorState,
    after: DetectorState,
    upper: NoticeState,
    found: DetectedNotices,
) -> DetectorState:
    gap = upper.state.usual[3] if upper.state is not None and upper.state.usual[4] else None
    signal = detect_flood(state, after.seen, gap)
    if signal is None:
        return after if after.seen.at < after.flooding else after._replace(flooding=0)
    # Postgres accepts no NUL, and any program may write to the topic.
    user = unquote(value.path.rpartition(_USER)[2]).replace("\0", "\ufffd")
    more: Evidence = {"what": "user", "user": user, "every": signal.every, "until": signal.until}
    found.notices.append((partition, _notice(value, "anomaly", {**more, **signal.evidence})))
    return after._replace(flooding=signal.until if signal.every > 1 else 0)


def _aim(value: PublishedThreshold) -> Aim:
    target = getattr(named_policy(value.learner), "target", None)
    even = value.gain + value.cost
    share = target or (value.cost / even if even > 0.0 else TARGET)
    return Aim(min(value.speculate, 1.0), min(max(share, 0.0), 1.0), target is not None)


def _notice(value: PublishedThreshold, kind: Kind, evidence: Evidence) -> Notice:
    what = str(evidence.get("what", ""))
    return Notice(
        id=notice_id(kind, what, value.tenant, value.path, value.epoch, value.offset),
        kind=kind,
        tenant=value.tenant,
        workflow_type=value.workflow_type,
        path=value.path,
        at=value.at,
        evidence=dict(evidence),
    )


def _above_user(path: str) -> str | None:
    """Return the path above a user's context; None for other contexts."""
    above, _, last = path.rpartition("/")
    return above if above and last.startswith(_USER) else None


def _numbers(value: PublishedThreshold) -> tuple[int, ...]:
    counts = value.counts
    if counts is None:
        return ()
    return (
        counts.explicit_right, counts.suggestion_right, counts.speculative,
        counts.speculative_right, counts.confidence,
    )  # fmt: skip


def encode_state(state: DetectorState) -> bytes:
    """Return a state's stored form."""
    return _LAYOUT.pack(
        _VERSION, *state.seen, state.known, state.since, state.flooding, state.on,
        *state.held, *state.usual, *state.drift, *state.reached,
    )  # fmt: skip


def decode_state(raw: bytes | None) -> DetectorState | None:
    """Return a stored state; None without one, or of an unknown version."""
    if raw is None or len(raw) != _LAYOUT.size or raw[0] != _VERSION:
        return None
    _version, *rest = _LAYOUT.unpack(raw)
    seen, (known, since, flooding, on), numbers = OutcomeCounts(*rest[:7]), rest[7:11], rest[11:]
    return DetectorState(
        seen, known, since, on, flooding, tuple(numbers[:5]), tuple(numbers[5:10]),
        tuple(numbers[10:13]), tuple(numbers[13:]),
    )  # fmt: skip
