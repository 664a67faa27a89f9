"""Writes and reads the compressed files of a backup, with their sizes and SHA-256."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import cramjam

from replay.backup.manifest import BackupFile, UnusableBackup, require_plain
from replay.files.input import open_input

_FRAME_BYTES: Final = 4_000_000
"""Of one zstd frame, decompressed."""
_READ_BYTES: Final = 1 << 20
_LEVEL: Final = 1


class PackedWriter:
    """Writes one file of a backup, mode 0600, in zstd frames."""

    def __init__(self, folder: Path, name: str) -> None:
        """Create the file. Raises `OSError`, also if it exists."""
        self._name, self._parts, self._held = name, list[bytes](), 0
        number = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(number, "wb")
        self._sha256, self._bytes, self._unpacked = hashlib.sha256(), 0, 0
        self.entries = 0

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self._parts.append(bytes(data))
        self._held += len(data)
        if self._held >= _FRAME_BYTES:
            self._end_frame()

    def add(self, line: bytes) -> None:
        """Append one line, which counts as an entry."""
        self.entries += 1
        self.write(line)

    def _end_frame(self) -> None:
        packed = bytes(cramjam.zstd.compress(b"".join(self._parts), _LEVEL))
        self._file.write(packed)
        self._sha256.update(packed)
        self._bytes += len(packed)
        self._unpacked += self._held
        self._parts, self._held = [], 0

    def finish(self, kind: Any, **more: Any) -> BackupFile:
        """Flush it to disk and return its entry in the manifest. Raises `OSError`."""
        if self._held:
            self._end_frame()
        self._file.flush()
        os.fsync(self._file.fileno())
        return BackupFile(
            self._name, kind, self._sha256.hexdigest(), self._bytes, self._unpacked,
            self.entries, **more,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()


def require_unchanged(folder: Path, file: BackupFile) -> None:
    """Raise `UnusableBackup` if a file is missing or is not what was written. Raises `OSError`."""
    path = folder / file.name
    require_plain(path)
    size = path.stat().st_size
    if size != file.bytes:
        raise UnusableBackup(f"{path}: damaged: {size:,} bytes, {file.bytes:,} were written")
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != file.sha256:
        raise UnusableBackup(f"{path}: damaged: its SHA-256 is not that of the manifest")


def unpacked_chunks(folder: Path, file: BackupFile) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, at most those of the manifest.

    Raises `UnusableBackup` and `OSError`.
    """
    size = 0
    with open_input(folder / file.name) as opened:
        while chunk := opened.stream.read(_READ_BYTES):
            size += len(chunk)
            if size > file.unpacked:
                break
            yield chunk
    if size != file.unpacked:
        raise UnusableBackup(
            f"{folder / file.name}: damaged: it does not decompress to {file.unpacked:,} bytes"
        )


def lines_of(folder: Path, file: BackupFile) -> Iterator[bytes]:
    """Yield the lines of a file. Raises as `unpacked_chunks`, also if their number differs."""
    count, rest = 0, b""
    for chunk in unpacked_chunks(folder, file):
        *whole, rest = (rest + chunk).split(b"\n")
        count += len(whole)
        yield from whole
    if rest or count != file.entries:
        raise UnusableBackup(
            f"{folder / file.name}: damaged: {count:,} lines, {file.entries:,} were written"
        )
