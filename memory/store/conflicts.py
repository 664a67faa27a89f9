"""Repeats a transaction that another one of the memory has overtaken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from psycopg import errors

from memory.store.episodes import Superseded

T = TypeVar("T")
ATTEMPTS: Final = 5
_OVERTAKEN: Final = (Superseded, errors.DeadlockDetected, errors.SerializationFailure)
"""Another worker or import was faster: the next attempt sees what it has stored."""


async def repeated(transaction: Callable[[], Awaitable[T]]) -> T:
    """Return what a transaction returns, begun again up to 4 times if another one overtakes it.

    `transaction`: opens and ends one itself. Raises what the last attempt raises.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await transaction()
        except _OVERTAKEN:
            continue
    return await transaction()
