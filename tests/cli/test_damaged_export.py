"""Commands that read an export refuse a damaged one, and write nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from processing.records.batch import RecordBatch
from replay.sources.export_file import FORMAT, ExportHeader, Writer

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    "command", [("replay",), ("export", "copy.zst"), ("backtest", "fixed", "--processes", "1")]
)
def test_a_damaged_export_is_an_error(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "log.zst"
    with Writer(file, ExportHeader(FORMAT, 7, 1, "a test")) as writer:
        batch = RecordBatch("headstart.events", 0, 0, 1, [0], [1], [b"k"], [b'{"a":1}'])
        writer.add(batch)
    raw = bytearray(file.read_bytes())
    magic = b"\x28\xb5\x2f\xfd"
    second = raw.index(magic, raw.index(magic) + 1)
    raw[second + 9] ^= 1
    file.write_bytes(raw)
    ended = run(*command, "--source", "log.zst")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"log.zst, byte {second}: a piece with 1 records of partition 0 is damaged" in (
        ended.stderr
    )
    assert not (tmp_path / "copy.zst").exists()
