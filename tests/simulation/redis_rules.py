"""Rules about comparing Redis with the table, each of which can be switched off."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

import sinks.redis.wrong_fields
from agents.thresholds.redis_repair import RedisChecks
from tests.simulation import tampering

Patches = Any


def redis_is_compared() -> Patches:
    """What Redis holds is compared with the table, and repaired."""

    async def nothing(_self: RedisChecks) -> None:
        pass

    return patch.object(RedisChecks, "round", nothing)


def what_is_ahead_is_left_alone() -> Patches:
    """A value that the log may yet explain is not replaced by the table's."""
    return patch.object(
        sinks.redis.wrong_fields,
        "classify_ahead",
        lambda _raw, _end, *, known: "newer" if known else "unknown",
    )


def only_what_was_seen_is_replaced() -> Patches:
    """A value is replaced only while it is the one that was seen."""
    return patch.object(tampering, "same", lambda *_: True)


def foreign_fields_are_looked_for() -> Patches:
    """Fields of Redis that the table has no rows of are compared, too."""

    async def nothing(_self: RedisChecks, _fields: Any) -> None:
        pass

    return patch.object(RedisChecks, "_some_fields", nothing)


REDIS_RULES: Final = (
    redis_is_compared, what_is_ahead_is_left_alone, only_what_was_seen_is_replaced,
    foreign_fields_are_looked_for,
)  # fmt: skip
