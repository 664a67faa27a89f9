"""Laws of an input: packed or not, with a mark or not, read once or often, and never endless."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest

from replay.files import input as input_files
from replay.files.input import CannotRead, local_file, name_of, open_input, read_input
from replay.files.json_lines import json_lines

TEXT = "".join(json.dumps({"line": n, "ä": "x" * 50}) + "\n" for n in range(3000)).encode()
Pack = Callable[[bytes], bytes]


def zstd(content: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(content))


def frames(content: bytes) -> bytes:
    """Three frames, with one between them that decoders pass over."""
    skipped = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"12345"
    return skipped + zstd(content[:1000]) + zstd(b"") + skipped + zstd(content[1000:])


PACKED: dict[str, Pack] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "two members": lambda content: gzip.compress(content[:99]) + gzip.compress(content[99:]),
    "zstd": zstd,
    "frames": frames,
    "mark": lambda content: codecs.BOM_UTF8 + content,
    "gzip with mark": lambda content: gzip.compress(codecs.BOM_UTF8 + content),
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "UTF-16 big": lambda content: codecs.BOM_UTF16_BE + content.decode().encode("utf-16-be"),
}


@pytest.mark.parametrize("how", PACKED)
def test_however_it_is_packed(tmp_path: Path, how: str) -> None:
    file = tmp_path / "x"
    file.write_bytes(PACKED[how](TEXT))
    assert read_input(file) == TEXT
    with json_lines(file) as lines:
        assert [line for _, line in lines] == TEXT.splitlines(keepends=True)
        assert lines.share == 1.0


@pytest.mark.parametrize("how", ["gzip", "two members", "zstd", "frames"])
@pytest.mark.parametrize("left", [0.3, 0.99])
def test_a_truncated_file_is_an_error(tmp_path: Path, how: str, left: float) -> None:
    file = tmp_path / "x.packed"
    content = PACKED[how](TEXT)
    file.write_bytes(content[: int(len(content) * left)])
    with pytest.raises(CannotRead, match=r"x\.packed: (truncated|damaged)"):
        read_input(file)


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_damaged_input_is_an_error(tmp_path: Path, how: str) -> None:
    file = tmp_path / "x"
    content = bytearray(PACKED[how](TEXT))
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    file.write_bytes(content)
    with pytest.raises(CannotRead, match=r"x: (truncated|damaged)"):
        read_input(file)


@pytest.mark.parametrize("how", ["gzip", "zstd"])
@pytest.mark.parametrize("content", [b"\0" * 9_000_000, b"{" * 9_000_000])
def test_input_that_unpacks_to_too_much_is_an_error(
    tmp_path: Path, how: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "MOST_UNPACKED", 1 << 20)
    file = tmp_path / "x"
    file.write_bytes(PACKED[how](content))
    assert file.stat().st_size < 50_000
    with pytest.raises(CannotRead, match="decompresses to more than"):
        read_input(file)
    with pytest.raises(CannotRead, match="decompresses to more than"), json_lines(file) as lines:
        list(lines)


def test_a_long_file_of_short_lines_is_not_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "MOST_UNPACKED", 10_000)
    file = tmp_path / "x"
    file.write_bytes(gzip.compress(TEXT))
    with json_lines(file) as lines:
        assert sum(1 for _ in lines) == 3000


@pytest.mark.parametrize(
    ("head", "kind"), [(b"PK\x03\x04", "zip"), (b"BZh9", "bzip2"), (b"\xfd7zXZ\0", "xz")]
)
def test_other_compression_is_reported(tmp_path: Path, head: bytes, kind: str) -> None:
    file = tmp_path / "x"
    file.write_bytes(head + b"...")
    with pytest.raises(CannotRead, match=kind), open_input(file):
        pass


def test_input_that_can_be_read_once_is_copied(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(gzip.compress(TEXT)))
    writer.start()
    copy = local_file(pipe)
    writer.join()
    assert name_of(copy) == str(pipe)
    assert read_input(copy) == read_input(pickle.loads(pickle.dumps(copy))) == TEXT
    reading, writing = os.pipe()
    os.write(writing, b"{}\n")
    os.close(writing)
    assert read_input(f"/dev/fd/{reading}") == b"{}\n"
    os.close(reading)


def test_a_file_is_not_copied_and_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(TEXT)
    assert local_file(tmp_path / "x") == tmp_path / "x"
    with pytest.raises(CannotRead, match="it is a folder"):
        local_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        local_file(tmp_path / "none")


CSV = [
    (
        "confidence,correct,gain,at,workflow_type,user_id,context.region\n"
        '0.5,true,400,2026-01-01T00:00:00,refund,007,"a, ""b"""\n,no,,,,,\n',
        [
            {"confidence": 0.5, "correct": True, "gain": 400, "at": "2026-01-01T00:00:00",
             "context": {"workflow_type": "refund", "user_id": "007", "region": 'a, "b"'}},
            {"correct": False, "context": {}},
        ],
    ),
    (
        "confidence,correct\n0.5,1.0\n0.5,0.0\n",
        [{"confidence": 0.5, "correct": True, "context": {}},
         {"confidence": 0.5, "correct": False, "context": {}}],
    ),
    (
        "event_type;tenant;timestamp;success;data.result.gain_ms;data.prediction.was_correct\n"
        "task_complete;007;1760000000000;1;4.5;true\n",
        [
            {"event_type": "task_complete", "tenant": "007", "timestamp": 1760000000000,
             "success": True, "data": {"result": {"gain_ms": 4.5},
                                       "prediction": {"was_correct": True}}},
        ],
    ),
    (
        "run_id\tdomain\ttool\tcalled_at\treturned_at\terror\n"
        "r1\tshop\ta\t1000\t2000\tfalse\nr2\tshop\tb\t\t\t\nr1\tshop\tc\t2026-01-01\t\ttrue\n",
        [
            {"domain": "shop", "task_id": "r1", "steps": [
                {"tool": "a", "called_at": 1000, "returned_at": 2000, "error": False},
                {"tool": "c", "called_at": "2026-01-01", "error": True}]},
            {"domain": "shop", "task_id": "r2", "steps": [{"tool": "b", "error": False}]},
        ],
    ),
    (
        'traceId,name,metadata\nt,"a\nb","{""k"": 1}"\n',
        [{"traceId": "t", "name": "a\nb", "metadata": {"k": 1}}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "records"), CSV)
def test_rows_stand_for_lines(tmp_path: Path, text: str, records: list[Any]) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(gzip.compress(codecs.BOM_UTF8 + text.encode()))
    with json_lines(file) as lines:
        found = list(lines)
    assert [json.loads(line) for _, line in found] == records
    assert found[0][0] > 1


@pytest.mark.parametrize("text", ["no\n", "a, b\n", '"tool"\n', "{, correct\n", "[]\n", "1,2\n"])
def test_a_first_line_that_is_not_a_header_is_a_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x"
    file.write_text(text)
    with json_lines(file) as lines:
        assert list(lines) == [(1, text.encode())]
