"""Every kind of file that the client reads gives the same lines; others are refused by name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from pathlib import Path
from types import SimpleNamespace

import pytest

from headstart.emitting.line_input import open_lines

TEXT = '{"a": "K\u00f6ln\u2028"}\n\n{"b": 2}\r\n{}'
LINES = [(n, line) for n, line in enumerate(TEXT.encode().splitlines(keepends=True), start=1)]
BIG = TEXT * 100_000
KINDS = {
    "utf-8": TEXT.encode(), "mark": TEXT.encode("utf-8-sig"), "utf-16": TEXT.encode("utf-16"),
    "big endian": "\ufeff".encode("utf-16-be") + TEXT.encode("utf-16-be"),
}  # fmt: skip
KINDS |= {f"{kind}, gzip": gzip.compress(content) for kind, content in KINDS.items()}
KINDS["two gzip members"] = gzip.compress(TEXT[:10].encode()) + gzip.compress(TEXT[10:].encode())


def read(folder: Path, content: bytes) -> list[tuple[int, bytes]]:
    file = folder / "events"
    file.write_bytes(content)
    with open_lines(str(file)) as lines:
        return list(lines)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_lines(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(tmp_path, KINDS[kind]) == LINES
    stdin = io.BytesIO(KINDS[kind])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stdin))
    with open_lines("-") as lines:
        assert not stdin.tell(), "not read before it is asked for"
        assert list(lines) == LINES


@pytest.mark.parametrize("kind", ["mark", "utf-16", "utf-8, gzip"])
def test_nothing_but_a_mark(tmp_path: Path, kind: str) -> None:
    empty = {"mark": b"\xef\xbb\xbf", "utf-16": b"\xff\xfe", "utf-8, gzip": gzip.compress(b"")}
    assert read(tmp_path, empty[kind]) == read(tmp_path, b"") == []


@pytest.mark.parametrize(
    ("kind", "content"),
    [("zstd", bytes.fromhex("28b52ffd2000010000")), ("bzip2", bz2.compress(TEXT.encode())),
     ("xz", lzma.compress(TEXT.encode())), ("zip", b"PK\x03\x04\x14")],
)  # fmt: skip
def test_another_compression_is_named(tmp_path: Path, kind: str, content: bytes) -> None:
    with pytest.raises(OSError, match=f"events: it is compressed with {kind}; unpack it"):
        read(tmp_path, content)


def test_a_cut_or_damaged_file_is_an_error(tmp_path: Path) -> None:
    packed = gzip.compress(BIG.encode())
    with pytest.raises(OSError, match="events: cut"):
        read(tmp_path, packed[:-9])
    with pytest.raises(OSError, match="events: damaged gzip"):
        read(tmp_path, packed[:-8] + b"\0" * 8)
    with pytest.raises(OSError, match="events: damaged gzip"):
        read(tmp_path, packed[:40] + b"\xff" * 400)
