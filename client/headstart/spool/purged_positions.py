"""Positions of a spool whose events were removed by a purge, which are no losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

from headstart.spool.layout import PURGED_FILE
from headstart.spool.losses import Span
from headstart.spool.replacing import replace_file


def read_purged(folder: Path) -> list[Span]:
    """Return the removed positions of a spool, in order. Raises `ValueError` for a damaged file."""
    try:
        found = orjson.loads((folder / PURGED_FILE).read_bytes())
    except FileNotFoundError:
        return []
    return [(int(first), int(end)) for first, end in found]


def add_purged(folder: Path, positions: Iterable[int]) -> None:
    """Note that positions are removed, before they are. Raises `OSError`."""
    known = {at for first, end in read_purged(folder) for at in range(first, end)}
    replace_file(folder / PURGED_FILE, orjson.dumps(_spans(sorted(known.union(positions)))))


def _spans(positions: Sequence[int]) -> list[Span]:
    found: list[Span] = []
    for at in positions:
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], at + 1)
        else:
            found.append((at, at + 1))
    return found
