"""The format of `headstart.models`: a state with its offset, and the marker of a partition.

A marker is the last record of each batch of states. It has the offset of `headstart.decisions` at
which a restoring worker begins, also if a stale owner wrote an older state over a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeGuard

import msgspec

from headstart.keys import event_key, key_names

MARKER_KEY: Final = b"@partition"
"""Key of a partition's marker; no model has it, because it lacks the separator of keys."""
FORMAT: Final = 1
NO_RESET: Final = (0, -1)

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]


class NotAModel(ValueError):
    """A record of `headstart.models`, or a file with one, that cannot be read."""


class NewerModel(NotAModel):
    """A newer worker has written the record: upgrade this one."""


class StoredModel(msgspec.Struct, frozen=True, array_like=True):
    """The state of one model after all records of its key up to and including `offset`.

    `state`: of `FleetModel.to_bytes()`; empty: nothing was learned, ever or since a reset.
    `offset`: -1 if nothing of this log epoch was applied. `reset`: (epoch, offset) of the last
    reset, `NO_RESET` if there was none.
    """

    format: int
    epoch: _Count
    offset: _Offset
    reset: tuple[_Count, _Offset]
    state: bytes

    @property
    def version(self) -> tuple[int, int]:
        """What orders the states of one key."""
        return self.epoch, self.offset


class PartitionMarker(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of a partition's newest states when it was written.

    `reached`: no key has records between the offset of its state and this one.
    """

    format: int
    epoch: _Count
    reached: _Count
    offsets: Mapping[bytes, _Offset]


_encode = msgspec.msgpack.Encoder().encode
_read_model = msgspec.msgpack.Decoder(StoredModel).decode
_read_marker = msgspec.msgpack.Decoder(PartitionMarker).decode


def encode_model(epoch: int, offset: int, reset: tuple[int, int], state: bytes) -> bytes:
    """Return the value of a model's record."""
    return _encode(StoredModel(FORMAT, epoch, offset, reset, state))


def decode_model(value: bytes | None) -> StoredModel:
    """Return the model in a record's value. Raises `NotAModel`, of a newer format `NewerModel`."""
    try:
        found = _read_model(value or b"")
    except msgspec.MsgspecError as error:
        raise NotAModel(f"no state of a model: {error}") from error
    if found.format > FORMAT:
        raise NewerModel(
            f"a state of headstart.models has format {found.format}, known is {FORMAT}: a newer "
            "worker has written it; upgrade this one"
        )
    if found.format != FORMAT:
        raise NotAModel(f"a state of format {found.format}, known is {FORMAT}")
    return found


def encode_marker(epoch: int, reached: int, offsets: Mapping[bytes, int]) -> bytes:
    """Return the value of a marker."""
    return _encode(PartitionMarker(FORMAT, epoch, reached, offsets))


def decode_marker(value: bytes | None) -> PartitionMarker | None:
    """Return the marker in a record's value; None if it cannot be read."""
    try:
        found = _read_marker(value or b"")
    except msgspec.MsgspecError:
        return None
    return found if found.format == FORMAT else None


def is_model_key(key: bytes | None) -> TypeGuard[bytes]:
    """Return whether a record's key names a model: a tenant and a workflow type."""
    try:
        names = key_names(key or b"")
    except UnicodeDecodeError:
        return False
    return all(names) and event_key(*names) == key


def is_ahead(version: tuple[int, int], epoch: int, end: int) -> bool:
    """Return whether a version is later than all records of the log.

    Nothing that was learned from the log has such a version. `end`: the offset of the next record
    of the partition, read after the version.
    """
    return version >= (epoch, end)


def first_needed(
    markers: Iterable[PartitionMarker], versions: Mapping[bytes, tuple[int, int]], epoch: int
) -> int:
    """Return the offset of `headstart.decisions` from which a partition continues.

    `versions`: of the states that were found, by key. Each marker of this epoch bounds what may be
    missing: a key whose state is older than the marker's is continued after that state, all others
    at `reached`. Every marker is right about that, so the latest of these offsets counts; 0
    without a marker.
    """
    latest = 0
    for marker in markers:
        if marker.epoch != epoch:
            continue
        needed = marker.reached
        for key, offset in marker.offsets.items():
            version = versions.get(key, (0, -1))
            held = version[1] if version[0] == epoch else -1
            if held < offset:
                needed = min(needed, held + 1)
        latest = max(latest, needed)
    return latest
