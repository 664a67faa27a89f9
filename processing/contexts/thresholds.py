"""Derives the published threshold of a context: a function of its row alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headstart.keys import workflow_type_of
from learners.constant import Fixed
from learners.policy import START, SUGGEST_START, Policy, State, ThresholdPair
from processing.control.learned_defaults import decode_default
from processing.control.learner_assignments import named_policy
from processing.state.counters import restored
from processing.state.packed_state import ContextNumbers
from processing.state.rows import (
    CONTEXT,
    DEFAULT,
    ContextRow,
    context_of,
    decode_context,
    is_deleted,
    version,
)
from topics.schema.json_schema import Counts, Deviation, PublishedThreshold

_UNREADABLE: Final = Fixed()
_workflow_type_of = lru_cache(maxsize=65_536)(workflow_type_of)


def is_published(partition: int, key: bytes) -> bool:
    """Return whether a partition publishes the threshold of a row.

    Every partition has every default, and partition 0 publishes it.
    """
    return key.startswith(CONTEXT) or (partition == 0 and key.startswith(DEFAULT))


def threshold_from_row(key: bytes, raw: bytes) -> PublishedThreshold:
    """Return the published threshold of the row of a context or a default, deleted or not."""
    if is_deleted(raw):
        return _deleted(key, *version(raw))
    if key.startswith(DEFAULT):
        found = _default_row(raw)
        if found is None:
            return _deleted(key, *version(raw))
        row = found
    else:
        row = decode_context(raw)
    read = read_state(row)
    if read is None:  # a learner that this version does not know: be conservative
        return threshold_of(key, row._replace(state=_UNREADABLE.initial()), _UNREADABLE)
    policy, state = read
    return threshold_of(key, row._replace(state=state), policy)


def _default_row(raw: bytes) -> ContextRow | None:
    """Return a default as the row of a context; None where it was revoked."""
    default = decode_default(raw)
    if (learned := default.learned) is None:
        return None
    return ContextRow(
        *version(raw), default.at, learned.outcomes, 0, 0, learned.version, learned.learner,
        learned.state,
    )  # fmt: skip


def read_state(row: ContextRow) -> tuple[Policy, State] | None:
    """Return the policy and the state in a row; None where this version cannot read them."""
    policy = named_policy(row.learner)
    if policy is None or (state := policy.migrated(row.policy_version, row.state)) is None:
        return None
    return policy, state


def threshold_of(key: bytes, row: ContextRow, policy: Policy) -> PublishedThreshold:
    """Return the published threshold of a row whose state `policy` can read."""
    tenant, path = context_of(key)
    counts = restored(row.outcomes, row.speculated, row.hits, row.counts)
    numbers = ContextNumbers(row.state, row.at, row.gain, row.cost, counts)
    version = row.epoch, row.offset
    return answer(tenant, path, version, policy, row.learner, policy.thresholds(row.state), numbers)


def answer(
    tenant: str, path: str, version: tuple[int, int], policy: Policy, learner: str,
    thresholds: ThresholdPair, numbers: ContextNumbers,
) -> PublishedThreshold:  # fmt: skip
    """Return the published threshold of a context, given its thresholds and numbers."""
    counts, deviation = Counts(*numbers.counts), policy.deviation(numbers.state)
    return PublishedThreshold(
        tenant=tenant,
        workflow_type=_workflow_type_of(path),
        path=path,
        speculate=thresholds.speculate,
        suggest=thresholds.suggest,
        epoch=version[0],
        offset=version[1],
        outcomes=counts.explicit + counts.suggestion + counts.speculative,
        learner=learner,
        at=numbers.at,
        deviation=Deviation(*deviation) if deviation else None,
        gain=numbers.gain,
        cost=numbers.cost,
        counts=counts,
    )


def _deleted(key: bytes, epoch: int, offset: int) -> PublishedThreshold:
    tenant, path = context_of(key)
    return PublishedThreshold(
        tenant=tenant,
        workflow_type=_workflow_type_of(path),
        path=path,
        speculate=START,
        suggest=SUGGEST_START,
        epoch=epoch,
        offset=offset,
        outcomes=0,
        learner="",
        at=0,
        deleted=True,
    )
