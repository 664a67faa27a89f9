"""Opens the files that commands read: plain, gzip or zstd, with or without a byte order mark.

A compressed file is decompressed while it is read, in lines of bounded length, so that a small file
that expands to a huge one takes the memory of one line. A source that can be read only once (`-`,
a pipe) is copied to a temporary file first. The content of lines is parsed elsewhere.
"""

from __future__ import annotations

import atexit
import codecs
import gzip
import io
import mmap
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import cramjam

from replay.files.output import descriptor_of

MOST_UNPACKED: Final = 1 << 29
"""Bytes of one line, one document or one zstd frame of a compressed file."""
_CHUNK: Final = 1 << 18
_GZIP: Final = bytes.fromhex("1f8b")
ZSTD: Final = bytes.fromhex("28b52ffd")
_OTHERS: Final = {
    bytes.fromhex("504b0304"): "a zip archive",
    bytes.fromhex("425a68"): "compressed by bzip2",
    bytes.fromhex("fd377a585a00"): "compressed by xz",
}
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_names: dict[Path, str] = {}


class CannotRead(ValueError):
    """A file is truncated, damaged or of an unknown kind; the message names it and the fix."""


class Input:
    """An open file, decompressed: its lines, or all of it. Raises `CannotRead` if it is damaged."""

    def __init__(self, name: str, raw: BinaryIO, stream: IO[bytes], most: int | None) -> None:
        self._name, self._raw, self._stream, self._most = name, raw, stream, most
        self._size = max(1, os.fstat(raw.fileno()).st_size)

    @property
    def share(self) -> float:
        """Share of the file that was read, 0 to 1."""
        return min(1.0, self._raw.tell() / self._size)

    @property
    def stream(self) -> IO[bytes]:
        """The decompressed bytes."""
        return self._stream

    def __iter__(self) -> Iterator[bytes]:
        if self._most is None:
            yield from self._stream
            return
        while line := self._stream.readline(self._most + 1):
            self.check(len(line), "a line")
            yield line

    def read(self) -> bytes:
        """Return the rest of the file."""
        if self._most is None:
            return self._stream.read()
        found = self._stream.read(self._most + 1)
        self.check(len(found))
        return found

    def check(self, size: int, what: str = "a document") -> None:
        """Raise `CannotRead` if `size` bytes are too many to hold of a compressed file at once."""
        if self._most is not None and size > self._most:
            raise CannotRead(
                f"{self._name}: {what} of it decompresses to more than {MOST_UNPACKED >> 20} MB; "
                "if that is expected, decompress the file first"
            )


@contextmanager
def open_input(file: Path) -> Iterator[Input]:
    """Open a file returned by `local_file`. Raises `OSError` and `CannotRead`."""
    name = name_of(file)
    with file.open("rb") as raw:
        head = raw.peek(6)[:6]
        if head[:2] == _GZIP:
            packed: Iterator[bytes] | None = _gunzipped(name, raw)
        elif head[:4] == ZSTD or _is_skippable(head):
            packed = _unpacked_frames(name, raw)
        else:
            packed = None
            for magic, kind in _OTHERS.items():
                if head.startswith(magic):
                    raise CannotRead(
                        f"{name}: it is {kind}; decompress it, or compress it with gzip"
                    )
        stream = _without_mark(raw if packed is None else _stream_of(packed))
        yield Input(name, raw, stream, None if packed is None else MOST_UNPACKED)


def read_input(source: str | Path) -> bytes:
    """Return all of a small file, or of standard input (`-`). Raises as `open_input` does."""
    with open_input(local_file(source)) as opened:
        return opened.read()


def local_file(source: str | Path) -> Path:
    """Return a path that can be opened repeatedly, also by other processes.

    It is the source itself, or a copy of a source that can be read only once: `-` (standard
    input), a pipe, a descriptor such as /dev/fd/63. The copy is removed when the process ends.
    Raises `OSError`, and `CannotRead` for a folder.
    """
    number = 0 if str(source) == "-" else descriptor_of(source)
    if number is None:
        mode = os.stat(source).st_mode
        if stat.S_ISDIR(mode):
            raise CannotRead(f"{source}: it is a folder; name a file in it")
        if stat.S_ISREG(mode):
            return Path(source)
    folder = Path(tempfile.mkdtemp(prefix="headstart-input-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / "input"
    _names[copy] = "standard input" if number == 0 else str(source)
    opened = os.dup(number) if number is not None else os.open(source, os.O_RDONLY)
    with os.fdopen(opened, "rb") as once, copy.open("wb") as kept:
        shutil.copyfileobj(once, kept)
    return copy


def name_of(file: Path) -> str:
    """Return the name that messages use for a file returned by `local_file`."""
    return _names.get(file, str(file))


class _Chunks(io.RawIOBase):
    """A stream of the bytes that an iterator yields."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _stream_of(chunks: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Chunks(chunks), _CHUNK)


def _without_mark(stream: io.BufferedReader) -> io.BufferedReader:
    head = stream.peek(3)[:3]
    if head == codecs.BOM_UTF8:
        stream.read(3)
    elif head[:2] in _UTF16:
        # PowerShell redirects output as UTF-16.
        parts = codecs.iterdecode(iter(lambda: stream.read(_CHUNK), b""), "utf-16", "replace")
        return _stream_of(part.encode("utf-8", "replace") for part in parts)
    return stream


def _gunzipped(name: str, raw: BinaryIO) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=raw, mode="rb") as packed:
            while chunk := packed.read(_CHUNK):
                yield chunk
    except EOFError:
        raise CannotRead(f"{name}: truncated: the end of its gzip stream is missing") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise CannotRead(f"{name}: damaged gzip ({error})") from None


def _is_skippable(head: bytes) -> bool:
    return head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5


def _unpacked_frames(name: str, raw: BinaryIO) -> Iterator[bytes]:
    """Yield the content of the zstd frames of a file, in order (RFC 8878, section 3)."""
    while magic := raw.read(4):
        if _is_skippable(magic):
            _exactly(raw, int.from_bytes(_exactly(raw, 4, name), "little"), name)
            continue
        if magic != ZSTD:
            raise CannotRead(f"{name}: damaged zstd: no frame begins at byte {raw.tell() - 4}")
        yield from _unpacked(magic + _frame(raw, name), name)


def _frame(raw: BinaryIO, name: str) -> bytes:
    """Return the rest of a frame, by the lengths in the headers of its blocks."""
    head = _exactly(raw, 1, name)
    sizes, single, dictionary = head[0] >> 6, head[0] >> 5 & 1, head[0] & 3
    length = (not single) + (0, 1, 2, 4)[dictionary] + ((single, 2, 4, 8)[sizes])
    parts, last = [head, _exactly(raw, length, name)], False
    while not last:
        block = _exactly(raw, 3, name)
        header = int.from_bytes(block, "little")
        last, repeated = bool(header & 1), header >> 1 & 3 == 1
        parts += (block, _exactly(raw, 1 if repeated else header >> 3, name))
    parts.append(_exactly(raw, 4 if head[0] >> 2 & 1 else 0, name))
    return b"".join(parts)


def _exactly(raw: BinaryIO, length: int, name: str) -> bytes:
    found = raw.read(length)
    if len(found) < length:
        raise CannotRead(f"{name}: truncated: the end of its zstd stream is missing")
    return found


def _unpacked(frame: bytes, name: str) -> Iterator[bytes]:
    # Pages that are never written take no memory.
    with mmap.mmap(-1, MOST_UNPACKED) as room:
        try:
            size = cramjam.zstd.decompress_into(frame, room)
        except cramjam.DecompressionError as error:
            if "whole buffer" in str(error):
                raise CannotRead(
                    f"{name}: one zstd frame of it decompresses to more than "
                    f"{MOST_UNPACKED >> 20} MB; if that is expected, decompress it first"
                ) from None
            raise CannotRead(f"{name}: damaged zstd ({error})") from None
        for begin in range(0, size, _CHUNK):
            yield room[begin : min(size, begin + _CHUNK)]
