"""Lines of a file or of standard input: UTF-8 or UTF-16, plain or gzip.

The service's commands read further kinds of files; the client does with the standard library.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

_GZIP: Final = bytes.fromhex("1f8b")
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OTHERS: Final = {
    bytes.fromhex("28b52ffd"): "zstd",
    bytes.fromhex("504b0304"): "zip",
    bytes.fromhex("425a68"): "bzip2",
    bytes.fromhex("fd377a585a00"): "xz",
}


@contextlib.contextmanager
def open_lines(file: str) -> Iterator[Iterable[tuple[int, bytes]]]:
    """Open a file (`-` is standard input) for its lines in UTF-8 and their numbers, from 1.

    Raises `OSError`, also while it is read: where it is compressed otherwise (before the first
    line), cut or damaged. Standard input is not read before the first line is asked for.
    """
    if file == "-":
        yield enumerate(_lines(file, sys.stdin.buffer), start=1)
    else:
        with open(file, "rb") as opened:
            yield enumerate(_lines(file, opened), start=1)


def _lines(file: str, raw: Any) -> Iterator[bytes]:
    stream: Any = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
    head = stream.peek(6)[:6]
    for magic, kind in _OTHERS.items():
        if head.startswith(magic):
            raise OSError(f"{file}: it is compressed with {kind}; unpack it, or use gzip")
    if not head.startswith(_GZIP):
        yield from _decoded(stream)
        return
    try:
        yield from _decoded(io.BufferedReader(gzip.GzipFile(fileobj=stream)))
    except EOFError:
        raise OSError(f"{file}: cut: the end of its gzip stream is missing") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise OSError(f"{file}: damaged gzip ({error})") from None


def _decoded(stream: Any) -> Iterator[bytes]:
    """Yield lines in UTF-8, without a byte order mark."""
    head = stream.peek(3)[:3]
    if head[:2] in _UTF16:
        text = io.TextIOWrapper(stream, "utf-16", "replace", newline="\n")
        try:
            yield from (line.encode() for line in text)
        finally:
            text.detach()  # which would close standard input
        return
    if head == codecs.BOM_UTF8:
        stream.read(3)
    yield from stream
