"""How much a directory of spools holds: added up in bounded parts, as who emits must not wait.

A thousand spools are ten milliseconds of looks at files. What is not known yet, the caller bears.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

from headstart.spool.layout import QUARANTINE

PART: Final = 100
"""Most spools in one look: about a millisecond."""


class DiskUsage:
    """The bytes of all segments that wait in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: Generator[int, None, None] | None = None
        self._total = 0

    def look(self, most: int = PART) -> int | None:
        """Go on adding up, by at most so many spools; return the sum once none is left, else None.

        The look after that begins anew. Raises `OSError` where the directory cannot be read.
        """
        if self._sizes is None:
            self._sizes, self._total = _sizes(self._directory), 0
        for _ in range(most):
            size = next(self._sizes, None)
            if size is None:
                self._sizes = None
                return self._total
            self._total += size
        return None

    def close(self) -> None:
        """Let go of the directory."""
        if self._sizes is not None:
            self._sizes.close()
            self._sizes = None


def _sizes(directory: Path) -> Generator[int, None, None]:
    """Yield the bytes of one spool after the other."""
    with os.scandir(directory) as spools:
        for spool in spools:
            if spool.name == QUARANTINE or not spool.is_dir(follow_symlinks=False):
                continue
            try:
                with os.scandir(spool.path) as files:
                    yield sum(file.stat().st_size for file in files)
            except FileNotFoundError:  # released while we looked
                continue
