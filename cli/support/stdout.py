"""Standard output whose errors name it, to distinguish a full disk behind `>` from a file's."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, Final, TextIO

NAME: Final = "standard output"


class _Named(io.FileIO):
    """A descriptor for writing that is not closed."""

    def write(self, data: Any, /) -> int:
        """Write as `FileIO` does. Raises `OSError` with the stream's name as its file name."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, NAME) from None


def discard() -> None:
    """Discard buffered output, on which the interpreter would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def named(stream: TextIO | None) -> TextIO:
    """Return a stream on the same descriptor whose errors name it, or itself without a descriptor.

    If standard output is closed, `stream` is None: return one that discards output.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if type(stream) is not io.TextIOWrapper:
        return stream
    buffered = isinstance(stream.buffer, io.BufferedWriter)
    if not buffered and not isinstance(stream.buffer, io.FileIO):  # as with PYTHONUNBUFFERED
        return stream
    stream.flush()
    raw: Any = _Named(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw) if buffered else raw,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
