"""Loads the named SQL statements in `sql/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).parent / "sql"
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_statements(file: str, folder: Path = _FOLDER) -> Mapping[str, bytes]:
    """Return the statements of `folder`/`file`.sql by name, as bytes, which psycopg accepts.

    Each begins with a line `-- name: NAME` and a comment on its purpose.
    """
    parts = _NAME.split((folder / f"{file}.sql").read_text(encoding="utf-8"))
    return {
        name: body.strip().encode() for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
