"""Encodes the rows of the contexts table; each begins with its version: log epoch and offset.

Keys: `c` tenant 0x1f path (a context), `s` tenant 0x1f workflow type 0x1f workflow id 0x1f task id
(an open start; without the workflow type in tables of earlier versions),
`o` tenant 0x1f workflow type 0x1f spool id (the last position of a spool and key), `k` kind
0x1f … (state of control records), `d` tenant 0x1f `default` (a tenant's learned default), `e`
tenant 0x1f partition (a partition's evidence of a tenant's workflow types), `@partition` (the
applied offset). Every row is a pure function of a prefix of its partition's log.

A row is deleted by a row that holds only a version: a tombstone has no version, and a late writer
could bring the row back. The tombstone follows when no late writer can be left.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from headstart.keys import DEFAULT_PATH, SEPARATOR
from processing.state.packed_state import BODY, head

PARTITION_KEY: Final = b"@partition"
CONTEXT: Final = b"c"
START: Final = b"s"
SPOOL: Final = b"o"
CONTROL: Final = b"k"
DEFAULT: Final = b"d"
EVIDENCE: Final = b"e"

_SEPARATOR: Final = SEPARATOR.encode()
_VERSION = struct.Struct("<Qq")
_LARGEST: Final = 2**53
"""Epochs are Unix seconds, and no partition has so many records; Lua in Redis is exact up to it."""
_CONTEXT = struct.Struct("<QqqQQQHB")
_COUNTED = struct.Struct("<dd10Q")
_HAS_COUNTS: Final = 0x8000
"""Set in a row's policy version where counters follow; rows of earlier versions have none."""
_NEWEST = struct.Struct("<q")
_OUTCOMES = struct.Struct("<Q")
_SPOOL = struct.Struct("<QqQq")


class ContextRow(NamedTuple):
    """The row of a context. `at`: time of its newest outcome, Unix ms.

    `gain` and `cost`: moving averages, ms; `counts`: see `processing.state.counters`.
    """

    epoch: int
    offset: int
    at: int
    outcomes: int
    speculated: int
    hits: int
    policy_version: int
    learner: str
    """The policy's specification."""
    state: tuple[float, ...]
    gain: float = 0.0
    cost: float = 0.0
    counts: tuple[int, ...] = ()


class OpenPredictionRow(msgspec.Struct, gc=False, array_like=True):
    """An open `speculation_start`, kept until its task completes, or for an hour.

    `timestamp`: the partition's clock as it arrived, Unix ms; in logs without clock records the
    event's own. `user_id`: None also in rows of earlier versions.
    """

    timestamp: int
    confidence: float
    tool_id: str | None
    mode: str
    speculated: bool
    levels: tuple[str | None, ...]
    user_id: str | None = None


class TaskStateRow(msgspec.Struct, gc=False, array_like=True):
    """The partition's own row. `clock`: Unix ms, by clock records, or before the first one the
    largest event time seen.

    `expired`: contexts that were idle too long; `evicted`: those of tenants that had too many;
    `forgotten` and `seeded`: those that operators reset or seeded. `idle_left`: when this hour
    began, more contexts were idle than the budget allowed to evict.
    `began`: the clock after the first clock record, 0 before it; `doubled`: how many clock records
    in a row were further ahead than the clock may move at once; `gaps`: (begin, end) of the times
    without clock records. See `processing.state.clock`.
    """

    clock: int = 0
    outcomes: int = 0
    unresolved: int = 0
    unmatched: int = 0
    duplicates: int = 0
    expired: int = 0
    evicted: int = 0
    forgotten: int = 0
    seeded: int = 0
    idle_left: bool = False
    began: int = 0
    doubled: int = 0
    gaps: tuple[tuple[int, int], ...] = ()


class SpoolRow(NamedTuple):
    """The last position of a spool and key. `at`: the partition's clock then, Unix ms."""

    position: int
    at: int


_WITH_IDLE: Final = TaskStateRow.__struct_fields__.index("idle_left") + 1
_encode = msgspec.msgpack.Encoder().encode
_decode_start = msgspec.msgpack.Decoder(OpenPredictionRow).decode
_decode_partition = msgspec.msgpack.Decoder(TaskStateRow).decode


def context_key(tenant: str, path: str) -> bytes:
    """Return the key of a context's row."""
    return CONTEXT + f"{tenant}{SEPARATOR}{path}".encode()


def default_key(tenant: str) -> bytes:
    """Return the key of the row of a tenant's learned default."""
    return DEFAULT + f"{tenant}{SEPARATOR}{DEFAULT_PATH}".encode()


def evidence_key(tenant: str, partition: int) -> bytes:
    """Return the key of the row of a partition's evidence of a tenant's workflow types."""
    return EVIDENCE + f"{tenant}{SEPARATOR}{partition}".encode()


def context_of(key: bytes) -> tuple[str, str]:
    """Return (tenant, path) from the row key of a context or a default."""
    tenant, _, path = key[1:].decode().partition(SEPARATOR)
    return tenant, path


def start_key(tenant: str, workflow_type: str, workflow_id: str, task_id: str) -> bytes:
    """Return the key of an open start's row."""
    return (
        START
        + f"{tenant}{SEPARATOR}{workflow_type}{SEPARATOR}{workflow_id}{SEPARATOR}{task_id}".encode()
    )


def old_start_key(tenant: str, workflow_id: str, task_id: str) -> bytes:
    """Return an open start's key as earlier versions wrote it, without the workflow type."""
    return START + f"{tenant}{SEPARATOR}{workflow_id}{SEPARATOR}{task_id}".encode()


def without_type(key: bytes) -> bytes:
    """Return a start's key as earlier versions wrote it."""
    tenant, _workflow_type, rest = key.split(_SEPARATOR, 2)
    return tenant + _SEPARATOR + rest


def is_old_start(key: bytes) -> bool:
    """Return whether a key is that of a start as earlier versions wrote it."""
    return key.startswith(START) and key.count(_SEPARATOR) == 2


def spool_key(tenant: str, workflow_type: str, spool: str) -> bytes:
    """Return the key of the row of a spool and key."""
    return SPOOL + f"{tenant}{SEPARATOR}{workflow_type}{SEPARATOR}{spool}".encode()


def version(row: bytes) -> tuple[int, int]:
    """Return (epoch, offset) of any row."""
    epoch, offset = _VERSION.unpack_from(row)
    return epoch, offset


def is_row(key: bytes | None, row: bytes | None) -> bool:
    """Return whether a record of the changelog can be a worker's row or tombstone.

    It cannot without a key, too short for a version, or with a version that no log reaches, which
    nearly all text has. Such a row would win over every row of a worker.
    """
    if row is None or key is None:
        return key is not None
    if len(row) < _VERSION.size:
        return False
    epoch, offset = _VERSION.unpack_from(row)
    return bool(epoch <= _LARGEST and -1 <= offset <= _LARGEST)


def with_version(row: bytes, epoch: int, offset: int) -> bytes:
    """Return `row` with another version (a new epoch adopts the rows of the old one)."""
    return _VERSION.pack(epoch, offset) + row[_VERSION.size :]


def deleted(epoch: int, offset: int) -> bytes:
    """Return the row that deletes a row at an offset."""
    return _VERSION.pack(epoch, offset)


def is_deleted(row: bytes) -> bool:
    """Return whether a row only marks a deletion."""
    return len(row) == _VERSION.size


def stale(ours: bytes | None, theirs: bytes | None) -> bool:
    """Return whether `theirs` must not replace `ours`: an older row, or a tombstone over a row."""
    if ours is None:
        return False
    if theirs is None:
        return not is_deleted(ours)
    return version(theirs) < version(ours)


@lru_cache(maxsize=256)
def _context_struct(name: int, state: int, *, counted: bool) -> struct.Struct:
    """Return the struct of a context's row, given the lengths of learner name and state."""
    counts = _COUNTED.format[1:] if counted else ""
    return struct.Struct(f"{_CONTEXT.format}{name}s{counts}{state}d")


def encode_context(row: ContextRow) -> bytes:
    """Return the bytes of a context's row."""
    name, state = row.learner.encode(), row.state
    if not row.counts:
        packed = _context_struct(len(name), len(state), counted=False)
        return packed.pack(*row[:6], row.policy_version, len(name), name, *state)
    packed = _context_struct(len(name), len(state), counted=True)
    layout = row.policy_version | _HAS_COUNTS
    return packed.pack(*row[:6], layout, len(name), name, row.gain, row.cost, *row.counts, *state)


def encode_packed(
    epoch: int, offset: int, learner: str, policy_version: int, words: bytes
) -> bytes:
    """Return the bytes of a context's row, given its packed numbers."""
    at, outcomes, speculated, hits = head(words)
    name, layout = learner.encode(), policy_version | _HAS_COUNTS
    begin = _CONTEXT.pack(epoch, offset, at, outcomes, speculated, hits, layout, len(name))
    return begin + name + words[8 * BODY :]


def decode_context(raw: bytes) -> ContextRow:
    """Return a context's row from its bytes."""
    epoch, offset, at, outcomes, speculated, hits, layout, length = _CONTEXT.unpack_from(raw)
    body = _CONTEXT.size + length
    name = raw[_CONTEXT.size : body].decode()
    gain, cost = 0.0, 0.0
    counts: Sequence[int] = ()
    if layout & _HAS_COUNTS:
        gain, cost, *counts = _COUNTED.unpack_from(raw, body)
        body += _COUNTED.size
    state = struct.unpack_from(f"<{(len(raw) - body) // 8}d", raw, body)
    return ContextRow(
        epoch, offset, at, outcomes, speculated, hits, layout & ~_HAS_COUNTS, name, state,
        gain, cost, tuple(counts),
    )  # fmt: skip


def outcomes_in(raw: bytes) -> int:
    """Return the outcomes that a context's row counts."""
    outcomes: int = _OUTCOMES.unpack_from(raw, _VERSION.size + _NEWEST.size)[0]
    return outcomes


def newest_outcome(raw: bytes) -> int:
    """Return the time of the newest outcome in a context's row, Unix ms."""
    at: int = _NEWEST.unpack_from(raw, _VERSION.size)[0]
    return at


def encode_start(start: OpenPredictionRow, epoch: int, offset: int) -> bytes:
    """Return the bytes of an open start's row."""
    return _VERSION.pack(epoch, offset) + _encode(start)


def decode_start(raw: bytes) -> OpenPredictionRow:
    """Return an open start from its row."""
    return _decode_start(raw[_VERSION.size :])


def encode_partition(row: TaskStateRow, epoch: int, offset: int) -> bytes:
    """Return the bytes of the partition's row, `offset` being its applied offset."""
    # Without clock records, rows equal those of earlier versions, which lack the last fields.
    fields: object = row
    if not row.began:
        fields = msgspec.structs.astuple(row)[: _WITH_IDLE if row.idle_left else _WITH_IDLE - 1]
    return _VERSION.pack(epoch, offset) + _encode(fields)


def decode_partition(raw: bytes) -> TaskStateRow:
    """Return the partition's row from its bytes."""
    return _decode_partition(raw[_VERSION.size :])


def encode_spool(row: SpoolRow, epoch: int, offset: int) -> bytes:
    """Return the bytes of the row of a spool and key."""
    return _SPOOL.pack(epoch, offset, row.position, row.at)


def decode_spool(raw: bytes) -> SpoolRow:
    """Return the row of a spool and key from its bytes."""
    return SpoolRow._make(_SPOOL.unpack(raw)[2:])


def control_row(body: bytes, epoch: int, offset: int) -> bytes:
    """Return the bytes of a control record's row."""
    return _VERSION.pack(epoch, offset) + body


def control_body(raw: bytes) -> bytes:
    """Return a control record's row without its version."""
    return raw[_VERSION.size :]
