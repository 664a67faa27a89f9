"""Whether two stored values mean the same: compared as parsed, never as bytes.

Another version of Headstart may write fields in another order, leave out one that has its default
value, or add one. None of this is a difference.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from processing.contexts.thresholds import read_state
from processing.state.counters import restored
from processing.state.rows import (
    CONTEXT,
    PARTITION_KEY,
    SPOOL,
    START,
    ContextRow,
    OpenPredictionRow,
    control_body,
    decode_context,
    decode_partition,
    decode_spool,
    decode_start,
    is_deleted,
    version,
)
from topics.schema.meaning import same_value

_UNREADABLE: Final = (msgspec.MsgspecError, struct.error, ValueError, IndexError)


def same_row(key: bytes, one: bytes, other: bytes) -> bool:
    """Return whether two rows of one key of the contexts table mean the same."""
    if one == other:
        return True
    try:
        return version(one) == version(other) and _same_body(key, one, other)
    except _UNREADABLE:
        return False


def _same_body(key: bytes, one: bytes, other: bytes) -> bool:
    if is_deleted(one) or is_deleted(other):
        return is_deleted(one) and is_deleted(other)
    if key == PARTITION_KEY:
        return decode_partition(one) == decode_partition(other)
    if key.startswith(CONTEXT):
        return _same_context(decode_context(one), decode_context(other))
    if key.startswith(START):
        return _same_start(decode_start(one), decode_start(other))
    if key.startswith(SPOOL):
        return decode_spool(one) == decode_spool(other)
    bodies = [msgspec.msgpack.decode(control_body(row)) for row in (one, other)]
    return same_value(*bodies)


def _same_start(one: OpenPredictionRow, other: OpenPredictionRow) -> bool:
    """Compare two open starts; rows of earlier versions do not have the user."""
    if None in (one.user_id, other.user_id):
        one, other = (msgspec.structs.replace(each, user_id=None) for each in (one, other))
    return one == other


def _same_context(one: ContextRow, other: ContextRow) -> bool:
    """Compare two contexts; a learner's state in the layout that this version has it in."""
    if (one.learner, one.policy_version, one.state) != (
        other.learner, other.policy_version, other.state,
    ):  # fmt: skip
        read = read_state(one)
        if read is None or read != read_state(other):
            return False
    return _counted(one) == _counted(other)


def _counted(row: ContextRow) -> Sequence[float]:
    counts = restored(row.outcomes, row.speculated, row.hits, row.counts)
    return [row.at, row.gain, row.cost, *counts]
