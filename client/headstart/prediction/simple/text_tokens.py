"""Words of a text that may be arguments: ids, numbers, dates; and what they look like."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_MOST_CHARACTERS: Final = 1500
_MOST_TOKENS: Final = 160
_TOKEN: Final = re.compile(r"[#\w][\w.@\-:/']*\w|\w")
_WORD_NUMBER: Final = re.compile(r"\b[a-z]+ \d+")
_MONTHS: Final = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_DATE: Final = re.compile(rf"\b({'|'.join(_MONTHS)})[a-z]*\.? (\d{{1,2}})\b", re.IGNORECASE)
_ISO_DATE: Final = re.compile(r"\b(20\d\d)-\d\d-\d\d\b")


def year_in(text: str) -> str | None:
    """Return the year of the first ISO date in a text: of dates that are written without one."""
    if "20" not in text:
        return None
    found = _ISO_DATE.search(text[:_MOST_CHARACTERS])
    return found[1] if found else None


def tokens(text: str, year: str) -> list[str]:
    """Return the words of a text, `word 7` as one, and `May 20` as an ISO date of a year."""
    text = text[:_MOST_CHARACTERS]
    dates = [
        f"{year}-{_MONTHS.index(month.lower()) + 1:02d}-{int(day):02d}"
        for month, day in _DATE.findall(text)
    ]
    return (_TOKEN.findall(text) + _WORD_NUMBER.findall(text) + dates)[:_MOST_TOKENS]


@lru_cache(1 << 16)
def shape(token: str) -> str:
    """Return what a token looks like: `mia_li_3668` is `a_a_9`, `JFK` is `A3`, `W12` is `A9`.

    Runs of lower case and of digits are one letter each, runs of upper case keep their length.
    """
    found: list[str] = []
    last, length = "", 0
    for character in token[:40]:
        kind = _kind(character)
        if kind == last and kind in "aA9":
            length += 1
            continue
        if last == "A" and length > 1:
            found.append(str(length))
        found.append(kind)
        last, length = kind, 1
    if last == "A" and length > 1:
        found.append(str(length))
    return "".join(found)


def _kind(character: str) -> str:
    if character.islower():
        return "a"
    if character.isupper():
        return "A"
    return "9" if character.isdigit() else character
