"""A transaction that another one has overtaken begins again, a few times."""

from __future__ import annotations

import asyncio

import pytest
from psycopg import errors

from memory.store.conflicts import ATTEMPTS, repeated
from memory.store.episodes import Superseded


def outcome(failures: list[Exception]) -> str:
    """Return what comes of a transaction that fails so, one failure each time."""
    left, count = iter(failures), 0

    async def transaction() -> str:
        nonlocal count
        count += 1
        for failure in left:
            raise failure
        return f"done after {count}"

    try:
        return asyncio.run(repeated(transaction))
    except Exception as error:
        return f"{type(error).__name__} after {count}"


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ([], "done after 1"),
        ([Superseded(), errors.DeadlockDetected(), errors.SerializationFailure()], "done after 4"),
        ([Superseded() for _ in range(ATTEMPTS - 1)], f"done after {ATTEMPTS}"),
        ([Superseded() for _ in range(ATTEMPTS)], f"Superseded after {ATTEMPTS}"),
        ([errors.UniqueViolation()], "UniqueViolation after 1"),
    ],
)
def test_only_conflicts_are_repeated(failures: list[Exception], said: str) -> None:
    assert outcome(failures) == said
