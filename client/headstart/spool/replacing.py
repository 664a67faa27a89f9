"""Replaces a file of a spool as a whole: kill -9 at any line leaves the old or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from headstart.spool.layout import NEW, sync_folder


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that is whole and on the disk before it has its name. Raises `OSError`."""
    making = path.with_name(f"{NEW}{path.name}")
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    making.replace(path)
    sync_folder(path.parent)
