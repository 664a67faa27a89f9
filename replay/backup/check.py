"""Checks a backup without any service: manifest, sizes, SHA-256, and counts of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from replay.backup.manifest import Manifest, UnusableBackup, read_manifest
from replay.backup.packed_files import lines_of, require_unchanged, unpacked_chunks

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_TRAILER: Final = b"\xff\xff"


def check_backup(
    folder: Path, echo: Callable[[str], None] = lambda _line: None, *, unpack: bool = True
) -> Manifest:
    """Return the manifest of a backup whose files are as they were written.

    `unpack`: also decompress them and count their lines. Raises `UnusableBackup`, which names the
    file, and `OSError`.
    """
    manifest = read_manifest(folder)
    for file in manifest.files:
        require_unchanged(folder, file)
    echo(f"{len(manifest.files)} files have the sizes and SHA-256 of the manifest")
    for file in manifest.files if unpack else ():
        if file.kind == "table":
            _check_table(folder / file.name, unpacked_chunks(folder, file))
        else:
            for _line in lines_of(folder, file):
                pass
    return manifest


def _check_table(path: Path, chunks: Iterable[bytes]) -> None:
    first = last = b""
    for chunk in chunks:
        first = first or chunk[: len(_SIGNATURE)]
        last = (last + chunk[-2:])[-2:]
    if first != _SIGNATURE or last != _TRAILER:
        raise UnusableBackup(f"{path}: damaged: not a whole table in COPY's binary format")
