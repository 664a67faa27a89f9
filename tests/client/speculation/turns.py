"""Turns of a speculator that knows its threshold without Redis, and a log of what it emits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import orjson

from headstart.events.validation import validate
from headstart.speculation.calls import GuessedCall, RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import AsyncSpeculator
from headstart.speculation.turn import Turn
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
    """Set a reader's mirrors to what Redis would have: nothing here is worth a round trip."""
    value = {"speculate": speculate, "suggest": 0.5, "epoch": 1, "offset": 1, "outcomes": 1}
    asked = reader._cache.build_query(CONTEXT, None)
    assert isinstance(asked, CacheQuery)
    values = [orjson.dumps(value), *[None] * (len(asked.fields) - 1)]
    reader._cache.store_response(asked, values, reader._clock())
    query = reader._modes.build_query("default", None)
    reader._modes.store_response(query, [[mode, b"run"], [None]], reader._clock())


def speculate(
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
            assert speculator._budget._reserved < 1e-6  # but rounding errors
            assert speculator.stats()["open"] == 0
            return speculator.stats()

    return asyncio.run(run())


def turn(
    speculator: AsyncSpeculator, call: Callable[[], Any], confidence: float = 0.9, **stakes: float
) -> Turn[Any]:
    """Return a turn with one guess, whose call is `call`."""
    guess = GuessedCall("search", ARGUMENTS, confidence, **stakes)
    return speculator.turn(CONTEXT, [guess], lambda tool, arguments: call())


def real(tool: str | None = "search", arguments: object = ARGUMENTS) -> list[RequestedCall]:
    """Return the one call that the model requests; none if the tool is None."""
    return [] if tool is None else [RequestedCall("1", tool, arguments)]


class Resolution(NamedTuple):
    """What became of a guess: `error` is the cause of its failure."""

    hit: bool
    value: Any = None
    error: BaseException | None = None


async def resolve(
    trying: Turn[Any], tool: str | None = "search", arguments: object = ARGUMENTS
) -> Resolution:
    """Settle a turn with one requested call, and wait for the result if a guess answers it."""
    match = trying.settle(real(tool, arguments)).get("1")
    if match is None:
        return Resolution(False)
    try:
        return Resolution(True, await match.result())
    except GuessFailed as error:
        return Resolution(False, error=error.__cause__ or error)


async def found() -> str:
    return "found"
