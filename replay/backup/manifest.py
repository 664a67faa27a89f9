"""The manifest of a backup: what its files hold, and which offsets of the log they stand for.

It is written last, so a folder without one is not a backup. It names no address and no secret.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

FORMAT: Final = 1
NAME: Final = "manifest.json"
_MOST_BYTES: Final = 16_000_000

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
_File = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,80}\.(copy|jsonl)\.zst$")]
_Day = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{8}$")]
_Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class UnusableBackup(ValueError):
    """A backup is incomplete, damaged or of another version; the message names the file."""


class BackupFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file: zstd frames of Postgres' binary COPY, or of JSON lines.

    Kinds `decisions`, `steps` and `topics` are of a log that is recreated (`replay.recreation`).
    `bytes`: its size; `unpacked`: decompressed; `entries`: rows or lines. `columns`: of a table.
    """

    name: _File
    kind: Literal["table", "rows", "events", "models", "commands", "decisions", "steps", "topics"]
    sha256: _Sha256
    bytes: _Count
    unpacked: _Count
    entries: _Count
    table: _Name | None = None
    columns: tuple[_Name, ...] = ()


class SequenceState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sequence of an identity column."""

    table: _Name
    column: _Name
    last_value: int
    is_called: bool


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a backup holds. Offsets are of `headstart.events` in log `epoch`, by partition.

    `applied`: last offset that the learned rows have (-1: none); `stored`: first offset that the
    tables lack; `log_end`: first offset that the saved end of the log lacks. `created`: Unix ms.
    `sha256`: of the other fields, see `sealed`.
    """

    format: int
    id: str
    created: _Count
    version: str
    postgres: str
    epoch: _Count
    partitions: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    migrations: tuple[tuple[str, str], ...]
    days: tuple[_Day, ...]
    sequences: tuple[SequenceState, ...]
    applied: Mapping[int, _Offset]
    stored: Mapping[int, _Count]
    log_end: Mapping[int, _Count]
    files: tuple[BackupFile, ...]
    sha256: str = ""

    def of_kind(self, kind: str) -> Iterator[BackupFile]:
        """Yield the files of a kind, in order."""
        return (each for each in self.files if each.kind == kind)

    def count(self, kind: str) -> int:
        """Return how many entries the files of a kind have."""
        return sum(each.entries for each in self.of_kind(kind))

    def rows_of(self, table: str) -> int:
        """Return how many rows of a table the backup has."""
        return sum(each.entries for each in self.of_kind("table") if each.table == table)

    def sealed(self) -> Manifest:
        """Return it with the SHA-256 of its other fields, by which damage is noticed."""
        plain = msgspec.json.encode(msgspec.structs.replace(self, sha256=""))
        return msgspec.structs.replace(self, sha256=hashlib.sha256(plain).hexdigest())


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup. Raises `UnusableBackup` and `OSError`."""
    path = folder / NAME
    if not path.exists():
        raise UnusableBackup(
            f"{folder}: not a complete backup: {NAME} is missing; `headstart backup create` "
            "writes it last"
        )
    require_plain(path)
    if path.stat().st_size > _MOST_BYTES:
        raise UnusableBackup(f"{path}: larger than {_MOST_BYTES:,} bytes, so not a manifest")
    raw = path.read_bytes()
    try:
        form = msgspec.json.decode(raw)
        if isinstance(form, dict) and form.get("format") != FORMAT:
            raise UnusableBackup(
                f"{path}: format {form.get('format')!r:.20}, but {FORMAT} is needed: restore it "
                "with the version of Headstart that wrote it"
            )
        found = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableBackup(f"{path}: damaged ({error})") from error
    _require_consistent(path, found)
    return found


def _require_consistent(path: Path, manifest: Manifest) -> None:
    if manifest != manifest.sealed():
        raise UnusableBackup(f"{path}: damaged: its SHA-256 is not that of its fields")
    names = [each.name for each in manifest.files]
    if len(set(names)) != len(names):
        raise UnusableBackup(f"{path}: damaged (a file is listed twice)")
    numbers = set(range(manifest.partitions))
    for offsets in (manifest.applied, manifest.log_end):
        if set(offsets) != numbers:
            raise UnusableBackup(f"{path}: damaged (offsets of other partitions)")
    if any((each.kind == "table") != (each.table is not None) for each in manifest.files):
        raise UnusableBackup(f"{path}: damaged (a table without a name)")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest sealed, readable by its owner only, and flush it. Raises `OSError`."""
    number = os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest.sealed()), indent=1) + b"\n")
        file.flush()
        os.fsync(number)


def require_plain(path: Path) -> None:
    """Raise `UnusableBackup` unless a path is a regular file and no link."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        raise UnusableBackup(f"{path}: missing") from None
    if not stat.S_ISREG(mode):
        raise UnusableBackup(f"{path}: not a regular file; a backup has no links")
