"""The text format of COPY: tab-separated columns, one row per line, backslash escapes.

NULL is the empty string, as set in the statements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_LETTERS: Final = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}
_ESCAPED: Final = re.compile(r"\\[\\tnr]")
_MILLISECONDS: Final = [f".{rest:03}Z" for rest in range(1000)]
_BLANKS: Final = bytes.maketrans(b"\t\n\r", b"   ")


def encode_columns(columns: Sequence[str]) -> bytes:
    """Return text columns joined by tabs. Raises `TypeError` if one is not a string."""
    # Few identifiers need escaping, and checking the whole line once is several times cheaper than
    # translating each column.
    plain = split_columns(["\t".join(columns)], len(columns))
    if plain is not None:
        return plain[0]
    return "\t".join([column.translate(_ESCAPES) for column in columns]).encode()


def decode_column(column: bytes) -> str:
    """Return the text of an encoded column."""
    text = column.decode()
    return _ESCAPED.sub(lambda found: _LETTERS[found[0]], text) if "\\" in text else text


def split_columns(lines: Sequence[str], columns: int) -> list[bytes] | None:
    """Return tab-separated lines of `columns` columns as bytes; None if one needs escaping."""
    text = "\n".join(lines)
    plain = (
        "\\" not in text
        and "\r" not in text
        and text.count("\n") == len(lines) - 1
        and text.count("\t") == len(lines) * (columns - 1)
    )
    return text.encode().split(b"\n") if plain else None


def encode_time(at_ms: int) -> str:
    """Return a Unix time in ms as a column. Raises `ValueError` after the year 9999."""
    seconds, rest = divmod(at_ms, 1000)
    return _second(seconds) + _MILLISECONDS[rest]


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"timestamp: {error}") from error


def encode_jsons(texts: Sequence[bytes]) -> Sequence[bytes]:
    """Return JSON texts as columns."""
    joined = b"".join(texts)
    if any(mark in joined for mark in (b"\\", b"\t", b"\n", b"\r")):
        return [encode_json(text) for text in texts]
    return texts


def encode_json(text: bytes) -> bytes:
    """Return JSON text as a column. In valid JSON, raw tabs and line ends are only white space."""
    return text.translate(_BLANKS).replace(b"\\", b"\\\\")
