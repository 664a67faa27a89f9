"""Finds in a text the tokens that arguments may be copied from: ids, names, numbers, dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

LONGEST_TEXT: Final = 1_500  # characters that are read
LONGEST_TOKEN: Final = 200

_TOKEN: Final = re.compile(r"[#\w][\w.@\-:/']*\w|\w")
_NUMBERED: Final = re.compile(r"[a-z]+ \d+")
_MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_DATE: Final = re.compile(rf"\b({'|'.join(_MONTHS)})[a-z]*\.? (\d{{1,2}})\b", re.IGNORECASE)
_ISO_DATE: Final = re.compile(r"\b(20\d\d)-\d\d-\d\d\b")
_STOP_WORDS: Final = frozenset((
    "the", "and", "you", "for", "that", "this", "with", "have", "can", "could", "would", "please",
    "are", "was", "not", "but", "from", "your", "just", "like", "will", "also", "about", "there",
    "what", "been", "any", "need", "help", "know", "want", "let", "get", "has", "they", "them",
    "our", "out",
))  # fmt: skip
_LONGEST_SHAPE: Final = 40


def shape(token: str) -> str:
    """Return what a token looks like: `W#12ab` is `A#9a`.

    A run of lower case letters, of digits or of letters without case is one character; of upper
    case letters two or more are followed by their number. No letter of the token itself is kept.
    """
    found = ""
    for kind, run in groupby(map(_kind, token[:_LONGEST_SHAPE])):
        n = len(list(run))
        if kind == "A" and n > 1:
            found += f"A{n}"
        else:
            found += kind if kind in "aA9x" else kind * n
    return found


def _kind(character: str) -> str:
    if character.islower():
        return "a"
    if character.isupper():
        return "A"
    if character.isdigit():
        return "9"
    return character if character.isascii() and not character.isalpha() else "x"


def tokens(text: str, limit: int) -> list[str]:
    """Return the first `limit` tokens of a text, then words with a number, then dates as ISO."""
    text = text[:LONGEST_TEXT]
    found = _TOKEN.findall(text)
    found += _NUMBERED.findall(text)
    if dates := _DATE.findall(text):
        known = _ISO_DATE.search(text)
        year = known[1] if known else "2024"
        for month, day in dates:
            number = _MONTHS.index(month.lower()) + 1
            found.append(f"{year}-{number:02d}-{int(day):02d}")
    return [token[:LONGEST_TOKEN] for token in found[:limit]]


_NUMBER: Final = re.compile(r"(?:0|[1-9]\d{0,14})(\.\d{1,14})?", re.ASCII)


def number_in(token: str) -> int | float | None:
    """Return the number that a token is in JSON: 7 for `7`, 7.5 for `7.5`, None for `07`."""
    if not token[:1].isdigit():
        return None
    found = _NUMBER.fullmatch(token)
    if found is None:
        return None
    if found[1] is None:
        return int(token)
    value = float(token)
    return value if repr(value) == token else None


def words(found: Sequence[str], limit: int) -> list[str]:
    """Return the words among tokens, in lower case, each once, without the commonest of English."""
    lower = [token.lower() for token in found if 1 < len(token) < 16]
    return list(dict.fromkeys([word for word in lower if word not in _STOP_WORDS]))[:limit]
