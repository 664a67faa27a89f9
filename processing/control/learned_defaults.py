"""Learned defaults of tenants, from control records: the newest of each.

A default is the state in which a tenant's next workflow type begins to learn. Every partition has
it; partition 0 also has the evidence of all partitions from which it merges the default
(`processing.control.default_merging`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Final

import msgspec

from learners.policy import Policy, State, layout_error
from processing.control.latest_by_subject import LatestBySubject
from processing.control.learner_assignments import named_policy
from processing.state.rows import DEFAULT, ContextRow, control_body, default_key, evidence_key
from topics.control.messages import Default, DefaultEvidence, LearnedState

_NONE_OF: Final = "state: is none of {}: {}"
_encode = msgspec.msgpack.Encoder().encode
_decode_default = msgspec.msgpack.Decoder(Default).decode
_decode_evidence = msgspec.msgpack.Decoder(DefaultEvidence).decode


class LearnedDefaults(LatestBySubject[Default | DefaultEvidence]):
    """The defaults that a partition received, and the evidence."""

    def restore(self, key: bytes, raw: bytes) -> None:
        """Restore one row of the table."""
        self._latest[key] = decode_default(raw) if key.startswith(DEFAULT) else decode_evidence(raw)

    def apply(self, record: Default | DefaultEvidence, offset: int) -> None:
        """Apply a record unless a newer one is known.

        Raises `ValueError` where a state is invalid for its learner.
        """
        if isinstance(record, Default):
            key = default_key(record.tenant)
            if record.learned is not None:
                state_in(record.learned)
        else:
            for known in record.known:
                policy = named_policy(known.learner)
                if policy is not None and policy.version == known.version:
                    state_in_context(known.path, known)  # other versions are not checked
            key = evidence_key(record.tenant, record.partition)
        held = self._latest.get(key)
        if held is None or (held.epoch, held.offset) < (record.epoch, record.offset):
            self._set(key, record, _encode(record), offset)

    def state_of(self, tenant: str, policy: Policy) -> State | None:
        """Return the initial state that a tenant's default has for a policy; None without one."""
        held = self._latest.get(default_key(tenant))
        learned = held.learned if isinstance(held, Default) else None
        if learned is None:
            return None
        before = named_policy(learned.learner)
        if before is None or before.name != policy.name:
            return None
        return policy.migrated(learned.version, learned.state)


def decode_default(raw: bytes) -> Default:
    """Return a default from its row."""
    return _decode_default(control_body(raw))


def decode_evidence(raw: bytes) -> DefaultEvidence:
    """Return the evidence of a partition from its row."""
    return _decode_evidence(control_body(raw))


def state_in(learned: LearnedState) -> State:
    """Return a learner's state, migrated to this version. Raises `ValueError`."""
    policy = named_policy(learned.learner)
    if policy is None:
        raise ValueError(f"learner: there is no policy {learned.learner!r} in this version")
    state = policy.migrated(learned.version, learned.state)
    if state is None:
        why = layout_error(policy, learned.version, learned.state)
        raise ValueError(_NONE_OF.format(learned.learner, why))
    return state


def refuse_unsound(path: str, row: ContextRow) -> None:
    """Raise `ValueError` where a state is invalid for its learner.

    States of other versions and of unknown learners are not checked.
    """
    policy = named_policy(row.learner)
    if policy is not None and policy.version == row.policy_version:
        why = layout_error(policy, row.policy_version, row.state)
        if why is not None:
            raise ValueError(f"{path}: {_NONE_OF.format(row.learner, why)}")


def refuse_implausible(path: str, row: ContextRow) -> None:
    """Raise `ValueError` where no replay by this version could produce a context's row."""
    if named_policy(row.learner) is None:
        raise ValueError(f"{path}: there is no policy {row.learner!r:.200} in this version")
    if not all(map(isfinite, (row.gain, row.cost, *row.state))):
        raise ValueError(f"{path}: a number is infinite or none")
    refuse_unsound(path, row)


def state_in_context(path: str, learned: LearnedState) -> State:
    """Return the same as `state_in`. Raises `ValueError` that names the context."""
    try:
        return state_in(learned)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def readable(known: Iterable[LearnedState], learner: str) -> list[tuple[State, int]]:
    """Return (state, outcomes) of those of one learner that this version can read."""
    found = []
    for each in known:
        if each.learner == learner:
            try:
                found.append((state_in(each), each.outcomes))
            except ValueError:
                continue
    return found
