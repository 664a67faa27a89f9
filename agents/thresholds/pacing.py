"""Long work cut into pieces, so that the loop answers in between.

A partition may have a million rows, and a loop that stands still beyond the session ends its
process (agents/health/stall_guard.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, TypeVar

Item = TypeVar("Item")

AT_ONCE: Final = 2_000


async def in_chunks(items: Iterable[Item]) -> AsyncIterator[list[Item]]:
    """Yield `items` in lists of at most `AT_ONCE`; others get their turn after each."""
    rest = iter(items)
    while chunk := list(islice(rest, AT_ONCE)):
        yield chunk
        await asyncio.sleep(0)
