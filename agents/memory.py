"""What becomes of memory that a worker no longer needs: rules for the collector and for malloc."""

from __future__ import annotations

import ctypes
import gc
from typing import Any, Final

GIVE_BACK_BYTES: Final = 128_000_000
"""Record values after which a worker gives back what it no longer needs: every few seconds of a
backlog. Each answer's memory for itself cost a sixth of all that a worker did."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of glibc's malloc.h."""
_RULES: Final = (
    (_M_ARENA_MAX, 1),  # what one thread fetches another frees, in an arena that nobody tidies
    (_M_MMAP_THRESHOLD, 32 << 20),  # the most there is: no answer's memory begins as new pages
    (_M_TRIM_THRESHOLD, 64 << 20),
)


def _glibc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.mallopt and libc.malloc_trim else None
    except (OSError, AttributeError):  # musl, macOS: another malloc, with rules of its own
        return None


_libc: Final = _glibc()


def keep_one_heap() -> None:
    """Have all threads share one heap, large blocks too; call it before there are threads."""
    if _libc is not None:
        for parameter, value in _RULES:
            _libc.mallopt(parameter, value)


def give_back() -> None:
    """Return the heap's free pages to the system.

    In a backlog a worker takes and frees megabytes many times a second, and what stays lies in
    between. malloc by itself only gives back the heap's end: a worker that could not keep up with
    its log grew by 3 MB/s, of which nothing was in use.
    """
    if _libc is not None:
        _libc.malloc_trim(0)


def collect_rarely() -> None:
    """Collect rarely: what a worker makes per event has no cycles, what stays is loaded by now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
