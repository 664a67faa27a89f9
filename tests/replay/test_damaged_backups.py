"""A damaged or hostile backup is refused, and the message names the file."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import msgspec
import pytest

from replay.backup.check import check_backup
from replay.backup.folder import whole_folder
from replay.backup.manifest import Manifest, UnusableBackup, write_manifest
from replay.backup.packed_files import PackedWriter, unpacked_chunks
from replay.backup.purge_list import read_purge_list
from replay.backup.saved_records import read_saved_rows, row_line
from replay.files.input import CannotRead
from replay.files.output import CannotWrite

ROWS = "learned_rows.jsonl.zst"
TABLE = "table_notices.copy.zst"
EMPTY_COPY = b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xff"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "backup"
    with whole_folder(place) as unfinished:
        with PackedWriter(unfinished, ROWS) as rows:
            for number in range(50):
                rows.add(row_line(0, b"c%d" % number, bytes(40)))
            files = [rows.finish("rows")]
        with PackedWriter(unfinished, TABLE) as table:
            table.write(EMPTY_COPY)
            files.append(table.finish("table", table="notices", columns=("id",)))
        manifest = Manifest(1, "b1", 1, "1.0", "18", 7, 1, (), (), (), {0: 49}, {0: 50}, {0: 50},
                            tuple(files))  # fmt: skip
        write_manifest(unfinished, manifest)
    return place


def change(place: Path, **fields: Any) -> None:
    """Change fields of the manifest as a sender of a hostile one would, with its SHA-256."""
    path = place / "manifest.json"
    changed = json.dumps(json.loads(path.read_text()) | fields)
    with contextlib.suppress(msgspec.ValidationError):
        sealed = msgspec.json.decode(changed, type=Manifest).sealed()
        changed = msgspec.json.encode(sealed).decode()
    path.write_text(changed)


def change_file(place: Path, **fields: Any) -> None:
    first, *others = json.loads((place / "manifest.json").read_text())["files"]
    change(place, files=[first | fields, *others])


def test_a_whole_backup_is_accepted(folder: Path) -> None:
    manifest = check_backup(folder)
    assert len(list(read_saved_rows(folder, manifest.files[0]))) == 50
    assert folder.stat().st_mode & 0o777 == 0o700


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def link(path: Path) -> None:
    other = path.with_name("other")
    path.rename(other)
    path.symlink_to(other)


@pytest.mark.parametrize("name", [ROWS, TABLE])
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        flip,
        link,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, damage: Callable[[Path], Any]) -> None:
    damage(folder / name)
    with pytest.raises(UnusableBackup, match=name):
        check_backup(folder)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/b.jsonl.zst", "x.zst", ""])
def test_no_file_outside_of_the_folder_is_read(folder: Path, name: str) -> None:
    change_file(folder, name=name)
    with pytest.raises(UnusableBackup, match=r"manifest\.json: damaged"):
        check_backup(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"format": 2},
        {"partitions": 0},
        {"partitions": 10**9},
        {"applied": {"5": 1}},
        {"epoch": -1},
        {"more": 1},
        {"sequences": [{"table": "x; drop", "column": "id", "last_value": 1, "is_called": True}]},
        {"days": ["2026-01-01"]},
    ],
)
def test_a_wrong_manifest_is_refused(folder: Path, fields: dict[str, Any]) -> None:
    change(folder, **fields)
    with pytest.raises(UnusableBackup, match=r"manifest\.json"):
        check_backup(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00", "[" * 100_000])
def test_what_is_no_manifest_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    with pytest.raises(UnusableBackup, match=r"manifest\.json"):
        check_backup(folder)


def test_each_digit_of_the_manifest_is_checked(folder: Path) -> None:
    path = folder / "manifest.json"
    whole = path.read_bytes()
    for place in (n for n, each in enumerate(whole) if chr(each).isdigit()):
        other = b"%d" % ((whole[place] - ord("0") + 1) % 10)
        path.write_bytes(whole[:place] + other + whole[place + 1 :])
        with pytest.raises(UnusableBackup, match=r"manifest\.json"):
            check_backup(folder)


def test_without_a_manifest_it_is_no_backup(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(UnusableBackup, match="not a complete backup"):
        check_backup(folder)


def test_a_file_that_decompresses_to_more_is_refused_early(folder: Path) -> None:
    """A hash can be made for any file: the size that it unpacks to is held to the manifest's."""
    bomb = bytes(cramjam.zstd.compress(bytes(100_000_000)))
    (folder / ROWS).write_bytes(bomb)
    change_file(folder, bytes=len(bomb), sha256=hashlib.sha256(bomb).hexdigest(), unpacked=3_000)
    with pytest.raises(UnusableBackup, match=ROWS):
        check_backup(folder)
    file = check_backup(folder, unpack=False).files[0]
    read = list[int]()
    with pytest.raises(UnusableBackup):
        read.extend(map(len, unpacked_chunks(folder, file)))
    assert sum(read) <= 3_000


def test_fewer_lines_than_written_are_refused(folder: Path) -> None:
    change_file(folder, entries=51)
    with pytest.raises(UnusableBackup, match="50 lines, 51 were written"):
        check_backup(folder)


def _interrupted(place: Path) -> None:
    with whole_folder(place) as unfinished:
        (unfinished / "part").write_bytes(b"x")
        raise KeyboardInterrupt


def test_an_interrupted_backup_leaves_no_folder(tmp_path: Path) -> None:
    place = tmp_path / "backup"
    with pytest.raises(KeyboardInterrupt):
        _interrupted(place)
    assert list(tmp_path.iterdir()) == []
    place.mkdir()
    (place / "mine").write_bytes(b"x")
    with pytest.raises(CannotWrite, match="it exists"), whole_folder(place):
        pass
    assert (place / "mine").exists()


def test_what_a_killed_process_left_is_deleted(tmp_path: Path) -> None:
    place = tmp_path / "backup"
    abandoned = tmp_path / ".backup.unfinished-1"
    abandoned.mkdir()
    (abandoned / "part").write_bytes(b"x")
    with whole_folder(place) as running, whole_folder(tmp_path / "other"):
        assert not abandoned.exists()
        with whole_folder(place) as second:
            (second / "part").write_bytes(b"x")
        assert running.exists()
        shutil.rmtree(place)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["backup", "other"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_leaves_no_folder(tmp_path: Path, number: int) -> None:
    with pytest.raises(CannotWrite, match="make room"), whole_folder(tmp_path / "backup"):
        raise OSError(number, os.strerror(number))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", '{"format": "headstart-purges", "purges": 1}\n', "x"])
def test_a_wrong_list_of_purges_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "purges"
    path.write_text(text)
    with pytest.raises((UnusableBackup, CannotRead), match="purges"):
        read_purge_list(path)
