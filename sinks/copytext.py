"""The text format of COPY: columns between tabs, one row a line, backslash escapes.

NULL is the empty string (the statements say so). Knows no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_BLANKS: Final = bytes.maketrans(b"\t\n\r", b"   ")


def encode_columns(columns: Sequence[str]) -> bytes:
    """Return text columns joined by tabs. Raises `TypeError` where one is no string."""
    line = "\t".join(columns)
    # Few identifiers need escaping, and looking at the whole line once is several times cheaper
    # than translating each column.
    if "\\" in line or "\n" in line or "\r" in line or line.count("\t") != len(columns) - 1:
        line = "\t".join([column.translate(_ESCAPES) for column in columns])
    return line.encode()


def encode_json(text: bytes) -> bytes:
    """Return JSON text as a column. Within valid JSON, tabs and line ends are only white space."""
    return text.translate(_BLANKS).replace(b"\\", b"\\\\")
