"""Which parts a request searches, one attempt after the other: a slow part is left out.

Postgres cancels a statement that takes too long, and with it the transaction, so the rest is
searched in another one. In a pipeline the error does not say which statement it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from memory.retrieval.request import Mode
from memory.retrieval.search import QueryVector

_ALONE: Final = (("", 1.0),)
_IN_PARTS: Final = (("", 0.5), ("words", 0.25), ("vectors", 0.25))
"""What an attempt leaves out, and the share of the request's time that its statements may take."""


class SearchedParts(NamedTuple):
    """What an attempt searches besides equal queries and contexts, and how long it may take."""

    vector: QueryVector | None
    words: bool
    timeout_s: float
    """Of a statement."""
    missing: tuple[str, ...] = ()
    """What it does not search, and why."""


def attempts(mode: Mode, vector: QueryVector | None, timeout_s: float) -> Iterator[SearchedParts]:
    """Yield the attempts at a request of `timeout_s` seconds, the next if one took too long."""
    before_s = timeout_s
    for left_out, share in _IN_PARTS if mode == "hybrid" and vector is not None else _ALONE:
        yield SearchedParts(
            None if left_out == "vectors" else vector,
            left_out != "words",
            timeout_s * share,
            (f"{left_out} were not searched: {too_slow(before_s)}",) if left_out else (),
        )
        before_s = timeout_s * share


def too_slow(seconds: float) -> str:
    """Return why a part is missing whose statement was cancelled after so long."""
    return f"Postgres did not answer within {seconds:g} s"
