"""The name that somebody may have meant, for messages about one that there is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'NAME'?)`, or nothing where no known name is like it."""
    found = get_close_matches(name, sorted(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
