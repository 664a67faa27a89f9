"""Attempts of a speculator that knows its threshold without Redis, and a log of what it emits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import orjson

from headstart.events.validation import validate
from headstart.speculation.attempt import Attempt
from headstart.speculation.speculator import AsyncSpeculator
from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.reader import AsyncThresholds

CONTEXT = {"workflow_type": "refund", "workflow_id": "w1", "domain": "retail", "user_id": "u7"}
ARGUMENTS = {"query": "lights", "limit": 3}
FOREVER = 1e9


class Log:
    """An emitter that keeps what it is given, by kind."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: Mapping[str, Any], /) -> str:
        full = {"tenant": "t", "timestamp": 1_760_000_000_000, "id": "0" * 32} | dict(event)
        validate(full)
        self.events.append(full)
        return "id"

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event_type"] == kind]


def know(reader: Any, speculate: float = 0.8, mode: bytes = b"act") -> None:
    """Tell a reader's mirrors what Redis would have: nothing here is worth a round trip."""
    value = {"speculate": speculate, "suggest": 0.5, "epoch": 1, "offset": 1, "outcomes": 1}
    asked = reader._cache.build_query(CONTEXT, None)
    assert isinstance(asked, CacheQuery)
    values = [orjson.dumps(value), *[None] * (len(asked.fields) - 1)]
    reader._cache.store_response(asked, values, reader._clock())
    query = reader._modes.build_query("default", None)
    reader._modes.store_response(query, [[mode, b"run"], [None]], reader._clock())


def attempts(
    test: Callable[[AsyncSpeculator, Log], Coroutine[Any, Any, None]],
    *,
    mode: bytes = b"act",
    **options: Any,
) -> dict[str, float]:
    """Run a test with a speculator that knows its threshold; return what it counted."""
    log = Log()

    async def run() -> dict[str, float]:
        async with AsyncThresholds("redis://127.0.0.1:1", staleness_s=FOREVER) as reader:
            know(reader, mode=mode)
            speculator = AsyncSpeculator(reader, log, **{"allowed": {"search"}, **options})
            await test(speculator, log)
            assert speculator._budget._reserved == 0.0
            return speculator.stats()

    return asyncio.run(run())


def attempt(
    speculator: AsyncSpeculator, call: Callable[[], Any], confidence: float = 0.9, **stakes: float
) -> Attempt[Any]:
    return speculator.attempt(CONTEXT, "search", ARGUMENTS, call, confidence=confidence, **stakes)
