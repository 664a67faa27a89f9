"""Splits rows into chunks that each fit a record or a record batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

Value = TypeVar("Value", bytes, bytes | None)

ROW_EXTRA: Final = 64
"""Upper bound of the bytes that a record batch adds to a row."""


def chunk_rows(
    rows: Iterable[tuple[bytes, Value]], most_bytes: int
) -> Iterator[list[tuple[bytes, Value]]]:
    """Split rows, in order, into lists of at most `most_bytes`, or of one row."""
    part: list[tuple[bytes, Value]] = []
    size = 0
    for key, row in rows:
        of_row = len(key) + len(row or b"") + ROW_EXTRA
        size += of_row
        if part and size > most_bytes:
            yield part
            part, size = [], of_row
        part.append((key, row))
    if part:
        yield part
