"""The text format of COPY: columns between tabs, one row a line, backslash escapes.

NULL is the empty string (the statements say so). Knows no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def encode_columns(columns: Sequence[str]) -> bytes:
    """Return text columns joined by tabs. Raises `TypeError` where one is no string."""
    line = "\t".join(columns)
    # Few identifiers need escaping, and looking at the whole line once is several times cheaper
    # than translating each column.
    if "\\" in line or "\n" in line or "\r" in line or line.count("\t") != len(columns) - 1:
        line = "\t".join([column.translate(_ESCAPES) for column in columns])
    return line.encode()


def encode_json(value: Any) -> bytes:
    """Return a column of JSON. Raises `TypeError` for what JSON cannot hold."""
    # orjson writes tabs and line ends as escapes, so only their backslashes are left to escape
    return orjson.dumps(value).replace(b"\\", b"\\\\")
