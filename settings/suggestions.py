"""Suggests the nearest known name, for messages about an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'NAME'?)`, or an empty string if no known name is similar."""
    found = get_close_matches(name, sorted(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
