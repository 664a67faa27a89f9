"""What becomes of memory that a worker no longer needs: rules for the collector and for malloc."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of glibc's malloc.h."""
_RULES: Final = (
    (_M_ARENA_MAX, 1),  # what one thread fetched another frees, in an arena that stays as it is
    (_M_MMAP_THRESHOLD, 1 << 17),  # else it grows with every large block that is freed
    (_M_TRIM_THRESHOLD, 1 << 20),
)


def give_back() -> None:
    """Have glibc's malloc return what is free to the system; call it before there are threads.

    In a backlog a worker takes and frees megabytes many times a second. By its own rules malloc
    keeps them for later, ever more of them: 3 MB/s in a worker that could not keep up. Elsewhere
    (musl, macOS) there is nothing to set.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in _RULES:
        mallopt(parameter, value)


def collect_rarely() -> None:
    """Collect rarely: what a worker makes per event has no cycles, what stays is loaded by now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
