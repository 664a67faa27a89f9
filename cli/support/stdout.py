"""Standard output whose errors name it: a full disk behind `>` is told from one of a file."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, Final, TextIO

NAME: Final = "standard output"


class _Named(io.FileIO):
    """A descriptor that is written to, and stays open."""

    def write(self, data: Any, /) -> int:
        """Write as `FileIO` does. Raises `OSError` with the stream in the place of its file."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, NAME) from None


def discard() -> None:
    """Send what is still buffered nowhere, or the interpreter fails on it once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def named(stream: TextIO | None) -> TextIO:
    """Return a stream on the same descriptor whose errors name it; itself where it has none.

    None is what a process has whose standard output is closed: what it prints goes nowhere.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if type(stream) is not io.TextIOWrapper:
        return stream
    buffered = isinstance(stream.buffer, io.BufferedWriter)
    if not buffered and not isinstance(stream.buffer, io.FileIO):  # which PYTHONUNBUFFERED makes it
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
