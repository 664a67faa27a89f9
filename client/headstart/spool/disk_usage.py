"""Measures the size of a directory of spools in bounded steps, so that `emit()` does not wait.

Measuring a thousand spools takes ten milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

from headstart.spool.layout import QUARANTINE

SPOOLS_PER_STEP: Final = 100
"""Most spools measured in one step: about a millisecond."""


class DiskUsage:
    """The bytes of all spools in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: Generator[int, None, None] | None = None
        self._total = 0

    def measure(self, max_spools: int = SPOOLS_PER_STEP) -> int | None:
        """Measure at most `max_spools` more spools; return the sum after the last one, else None.

        The next call then starts over. Raises `OSError` if the directory cannot be read.
        """
        if self._sizes is None:
            self._sizes, self._total = _sizes(self._directory), 0
        for _ in range(max_spools):
            size = next(self._sizes, None)
            if size is None:
                self._sizes = None
                return self._total
            self._total += size
        return None

    def close(self) -> None:
        """Close the directory."""
        if self._sizes is not None:
            self._sizes.close()
            self._sizes = None


def _sizes(directory: Path) -> Generator[int, None, None]:
    """Yield the bytes of each spool."""
    with os.scandir(directory) as spools:
        for spool in spools:
            if spool.name == QUARANTINE or not spool.is_dir(follow_symlinks=False):
                continue
            try:
                with os.scandir(spool.path) as files:
                    yield sum(file.stat().st_size for file in files)
            except FileNotFoundError:  # removed meanwhile
                continue
