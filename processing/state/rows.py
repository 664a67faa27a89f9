"""Rows of the contexts table as bytes: the log epoch and the last offset applied come first.

Keys: `c` tenant 0x1f path (a context), `s` tenant 0x1f workflow type 0x1f workflow id 0x1f task id
(an open start; in tables of old without the workflow type),
`o` tenant 0x1f workflow type 0x1f spool id (how far a spool's events of a key were seen), `k` kind
0x1f … (what control records said), `d` tenant 0x1f `default` (a tenant's learned default), `e`
tenant 0x1f partition (what a partition knows of a tenant's workflow types), `@partition` (the
applied offset). Every row is a pure function of a prefix of its partition's log.

A row is deleted by a row that holds its version and nothing else: a tombstone has no version, and
a late writer would bring the row back. The tombstone follows when no late writer can be left.
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
"""Epochs are Unix seconds, and no partition has so many records; Redis' Lua is exact up to it."""
_CONTEXT = struct.Struct("<QqqQQQHB")
_COUNTED = struct.Struct("<dd10Q")
_HAS_COUNTS: Final = 0x8000
"""Set in a row's policy version where what is counted follows: rows of old have none."""
_NEWEST = struct.Struct("<q")
_OUTCOMES = struct.Struct("<Q")
_SPOOL = struct.Struct("<QqQq")


class ContextRow(NamedTuple):
    """What is kept of one context. `at`: time of its newest outcome, Unix ms.

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
    event's own. `user_id`: None also in rows of old.
    """

    timestamp: int
    confidence: float
    tool_id: str | None
    mode: str
    speculated: bool
    levels: tuple[str | None, ...]
    user_id: str | None = None


class TaskStateRow(msgspec.Struct, gc=False, array_like=True):
    """The partition's own row. `clock`: what time it is, Unix ms, by clock records, or before the
    first one the largest event time seen.

    `expired`: contexts that were idle too long; `evicted`: those of tenants that had too many;
    `forgotten` and `seeded`: those that operators had forgotten, or given a state. `idle_left`: as
    this hour began, more contexts were idle than there was room to say so of.
    `began`: the clock after the first clock record, 0 before it; `doubled`: how many clock records
    in a row were further ahead than the clock may move at once; `gaps`: (begin, end) of the times
    in which nothing was witnessed. See `processing.state.clock`.
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
    """The last position seen of a spool and key. `at`: the partition's clock then, Unix ms."""

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
    """Return the key of the row of what a partition knows of a tenant's workflow types."""
    return EVIDENCE + f"{tenant}{SEPARATOR}{partition}".encode()


def context_of(key: bytes) -> tuple[str, str]:
    """Return (tenant, path) of the row key of a context, or of a default."""
    tenant, _, path = key[1:].decode().partition(SEPARATOR)
    return tenant, path


def start_key(tenant: str, workflow_type: str, workflow_id: str, task_id: str) -> bytes:
    """Return the key of an open start's row."""
    return (
        START
        + f"{tenant}{SEPARATOR}{workflow_type}{SEPARATOR}{workflow_id}{SEPARATOR}{task_id}".encode()
    )


def old_start_key(tenant: str, workflow_id: str, task_id: str) -> bytes:
    """Return the key that earlier versions gave an open start's row, without a workflow type."""
    return START + f"{tenant}{SEPARATOR}{workflow_id}{SEPARATOR}{task_id}".encode()


def without_type(key: bytes) -> bytes:
    """Return the key that earlier versions gave the row of a start's key."""
    tenant, _workflow_type, rest = key.split(_SEPARATOR, 2)
    return tenant + _SEPARATOR + rest


def is_old_start(key: bytes) -> bool:
    """Return whether a row's key is that of a start, as earlier versions wrote it."""
    return key.startswith(START) and key.count(_SEPARATOR) == 2


def spool_key(tenant: str, workflow_type: str, spool: str) -> bytes:
    """Return the key of the row of a spool and key."""
    return SPOOL + f"{tenant}{SEPARATOR}{workflow_type}{SEPARATOR}{spool}".encode()


def version(row: bytes) -> tuple[int, int]:
    """Return (epoch, offset) of any row."""
    epoch, offset = _VERSION.unpack_from(row)
    return epoch, offset


def is_row(key: bytes | None, row: bytes | None) -> bool:
    """Return whether a record of the changelog may be a worker's row or tombstone.

    Not where it has no key, is too short for a version, or has one that no log comes to, as nearly
    all text does. Such a row would win over every row of a worker's.
    """
    if row is None or key is None:
        return key is not None
    if len(row) < _VERSION.size:
        return False
    epoch, offset = _VERSION.unpack_from(row)
    return bool(epoch <= _LARGEST and -1 <= offset <= _LARGEST)


def with_version(row: bytes, epoch: int, offset: int) -> bytes:
    """Return `row` as it stands at another place of the log (a new epoch adopts old rows)."""
    return _VERSION.pack(epoch, offset) + row[_VERSION.size :]


def deleted(epoch: int, offset: int) -> bytes:
    """Return the row that deletes a row at an offset."""
    return _VERSION.pack(epoch, offset)


def is_deleted(row: bytes) -> bool:
    """Return whether a row only says that there is none any more."""
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
    """Return what packs a context's row of a learner's name and a state of such lengths."""
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
    """Return what `encode_context` does of a context whose numbers are packed."""
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
    # Rows of old do not have the last fields, and have to be the same to the byte.
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
    """Return what a control record's row holds besides its version."""
    return raw[_VERSION.size :]
