"""The states of models in the worker's directory: what is not in memory is read from there.

They are also what outlives an embedded broker, which loses `headstart.models` with its log.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Collection
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import structlog
from msgspec.structs import replace

from topics.models.records import (
    NewerModel,
    NotAModel,
    PartitionMarker,
    StoredModel,
    decode_marker,
    decode_model,
    encode_model,
)

log = structlog.get_logger()

_HEADER: Final = struct.Struct("<8sIIIII")
"""Magic; CRC of the key and the record without state; CRC of the state; bytes of each of them, in
this order, which follow."""
_MAGIC: Final = b"hsmodel2"
_ANY_VERSION: Final = b"hsmodel"
_LONGEST_HEAD: Final = 4_096
"""Of a file: a key has at most 2 identifiers."""
_MARKER: Final = "marker"


class ModelFileDamaged(RuntimeError):
    """A state in the worker's directory cannot be read; it was deleted."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was damaged and is deleted; the next start restores it from the log"
        )


class ModelFiles:
    """One directory for each partition, with a file for each model and a marker."""

    def __init__(self, data: Path) -> None:
        """`data`: the worker's directory."""
        self._data = data / "models"

    def write(self, partition: int, key: bytes, model: StoredModel) -> None:
        """Write a state, whole or not at all. Raises `OSError`."""
        record = encode_model(model.epoch, model.offset, model.reset, b"")
        header = _HEADER.pack(
            _MAGIC, crc32(key + record), crc32(model.state), len(key), len(record), len(model.state)
        )
        self._replace(self._path(partition, key), header + key + record + model.state)

    def read(self, partition: int, key: bytes) -> StoredModel:
        """Return a state. Raises `ModelFileDamaged`, `OSError`."""
        path = self._path(partition, key)
        data = path.read_bytes()
        found = _head(data, len(data))
        state = b"" if found is None else data[found.begin :]
        if found is None or found.key != key or found.check != crc32(state):
            path.unlink()
            raise ModelFileDamaged(path)
        return replace(found.model, state=state)

    def delete(self, partition: int, key: bytes) -> None:
        """Delete a state. Raises `OSError`."""
        self._path(partition, key).unlink(missing_ok=True)

    def heads(self, partition: int) -> dict[bytes, StoredModel]:
        """Return each model without its state, by key; what cannot be read is deleted.

        Only the begin of each file is read: whether the state is damaged, `read` finds. Raises
        `NewerModel`.
        """
        heads = {}
        for path in self._data.joinpath(str(partition)).glob("*.model"):
            with path.open("rb") as file:
                found = _head(file.read(_LONGEST_HEAD), path.stat().st_size)
            if found is None:
                log.warning("model_file.damaged", path=str(path))
                path.unlink()
            else:
                heads[found.key] = found.model
        return heads

    def write_marker(self, partition: int, value: bytes) -> None:
        """Write the marker: as in `headstart.models`, but of these files. Raises `OSError`."""
        self._replace(self._data / str(partition) / _MARKER, value)

    def marker(self, partition: int) -> PartitionMarker | None:
        """Return the marker, if there is one that can be read."""
        try:
            return decode_marker((self._data / str(partition) / _MARKER).read_bytes())
        except OSError:
            return None

    def keep_only(self, partitions: Collection[int]) -> None:
        """Delete the files of all other partitions: `headstart.models` has their states."""
        kept = set(map(str, partitions))
        for folder in self._data.glob("*"):
            if folder.name not in kept:
                shutil.rmtree(folder)

    def _path(self, partition: int, key: bytes) -> Path:
        name = blake2b(key, digest_size=16).hexdigest()
        return self._data / str(partition) / f"{name}.model"

    def _replace(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(data)
        fresh.replace(path)


class _Head(NamedTuple):
    """What a file has before the state: of it, the CRC and where it begins."""

    key: bytes
    model: StoredModel
    check: int
    begin: int


def _head(data: bytes, size: int) -> _Head | None:
    """Return the head of a file of `size` bytes that begins with `data`; None if damaged.

    Raises `NewerModel`.
    """
    if len(data) < _HEADER.size:
        return None
    magic, check, state_check, key_size, record_size, state_size = _HEADER.unpack_from(data)
    if magic != _MAGIC and magic.startswith(_ANY_VERSION):
        raise NewerModel(
            f"a file of {magic.decode('ascii', 'replace')} in the worker's directory, known is "
            f"{_MAGIC.decode()}: a newer worker has written it; upgrade this one"
        )
    begin = _HEADER.size + key_size + record_size
    rest = data[_HEADER.size : begin]
    if magic != _MAGIC or size != begin + state_size or check != crc32(rest):
        return None
    try:
        return _Head(rest[:key_size], decode_model(rest[key_size:]), state_check, begin)
    except NewerModel:
        raise
    except NotAModel:
        return None
