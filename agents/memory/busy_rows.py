"""Errors of Postgres that postpone regular work of the memory worker, and how they are logged."""

from __future__ import annotations

from typing import Final

from psycopg import errors

BUSY: Final = (errors.DeadlockDetected, errors.SerializationFailure)
"""Other work is done on the same rows: the next sweep or round does what is left."""
_MOST: Final = 500
"""Characters of a reason that are logged."""


def reason_of(error: BaseException) -> str:
    """Return an error in one line, for the log."""
    return " ".join(str(error).split())[:_MOST]
