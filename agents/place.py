"""The id of a worker's data directory: the same volume in a new container is the same place.

It is random, and in a file of the directory. A copy of the directory has the same one, as has the
disk of a cloned machine; a worker that is put out of its group therefore draws another.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from headstart.spool.replacing import replace_file

FILE: Final = "place"
"""The file's name in a worker's own directory."""
_ID: Final = re.compile(r"[0-9a-f]{16}")


def place_id(data: Path) -> str:
    """Return the id of a data directory, which is drawn and stored at the first call.

    16 hexadecimal digits. Call it with the directory's lock. Raises `OSError`.
    """
    return known_place_id(data) or draw_place_id(data)


def known_place_id(data: Path) -> str | None:
    """Return the id of a data directory; None before it has one, or if the file is damaged."""
    try:
        found = (data / FILE).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    return found if _ID.fullmatch(found) else None


def draw_place_id(data: Path) -> str:
    """Give a data directory another id; return it. Raises `OSError`."""
    drawn = secrets.token_hex(8)
    data.mkdir(parents=True, exist_ok=True)
    replace_file(data / FILE, f"{drawn}\n".encode())
    return drawn
