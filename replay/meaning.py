"""Whether two stored values mean the same: compared as parsed, never as bytes.

Another version of Headstart may write fields in another order, leave out one that has its default
value, or add one. None of this is a difference.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from processing.answers import read_state
from processing.rows import (
    CONTEXT,
    PARTITION_KEY,
    SPOOL,
    START,
    ContextRow,
    control_body,
    decode_context,
    decode_partition,
    decode_spool,
    decode_start,
    is_deleted,
    version,
)
from processing.tally import restored
from topics.schema import Threshold

_FIELDS: Final = frozenset(Threshold.__struct_fields__) - {"tenant", "workflow_type", "path"}
"""Fields of a threshold but those that say whose it is: keys and columns name these."""
_UNREADABLE: Final = (msgspec.MsgspecError, struct.error, ValueError, IndexError)


def same_value(one: Any, other: Any) -> bool:
    """Return whether two parsed values (JSON, MessagePack) mean the same.

    What only one of them has must be a default: null, false, 0, or empty.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(same_value(one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if _is_list(one) and _is_list(other):
        shorter, longer = sorted((one, other), key=len)
        rest = longer[len(shorter) :]
        pairs = zip(shorter, longer, strict=False)
        return all(same_value(*pair) for pair in pairs) and all(map(_is_default, rest))
    if one is None or other is None:
        return _is_default(one) and _is_default(other)
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)


def same_threshold(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two published thresholds of one context mean the same, their version included.

    As parsed from Redis or `headstart.thresholds`. Fields that this version does not know are
    passed over.
    """
    return all(same_value(one.get(name), other.get(name)) for name in _FIELDS)


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
        return decode_start(one) == decode_start(other)
    if key.startswith(SPOOL):
        return decode_spool(one) == decode_spool(other)
    bodies = [msgspec.msgpack.decode(control_body(row)) for row in (one, other)]
    return same_value(*bodies)


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


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_default(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_default, value.values()))
    if _is_list(value):
        return all(map(_is_default, value))
    return not value
