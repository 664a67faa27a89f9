"""Text that can stand in a prompt as data: no hidden character, no mark of a frame."""

from __future__ import annotations

import json
import unicodedata
from typing import Final

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Zl", "Zp"})
"""Control, format (bidirectional, zero width and tag characters among them), unassigned, private,
line and paragraph separators."""
_HIDDEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
"""Fillers, joiners and variation selectors: other categories, and just as invisible."""
_MARKS: Final = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>[]{}|`"}


def clean(text: str, /) -> str:
    """Return text in NFC without hidden characters; white space becomes single spaces.

    Half surrogate pairs become U+FFFD. Idempotent.
    """
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    whole = text.encode(errors="surrogatepass").decode(errors="replace")
    spaced = " ".join(whole.split())
    shown = "".join(each for each in spaced if not _is_hidden(each))
    return " ".join(unicodedata.normalize("NFC", shown).split())


def quote(text: str, limit: int, /) -> str:
    """Return text as a JSON string, `<>[]{}|` and backtick as `\\u` escapes.

    Of a text longer than `limit` characters the beginning stays, and an ellipsis at the end. The
    text must be clean.
    """
    cut = text if len(text) <= limit else text[: max(0, limit - 1)].rstrip() + "…"
    return json.dumps(cut, ensure_ascii=False).translate(_MARKS)


def _is_hidden(character: str) -> bool:
    return character in _HIDDEN or unicodedata.category(character) in _HIDDEN_CATEGORIES
