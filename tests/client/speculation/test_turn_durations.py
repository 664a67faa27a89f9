"""Turns in real time: a hit never delays the other calls, and saves what is accounted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from statistics import median

import pytest

from headstart.speculation.calls import GuessedCall, RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.speculator import AsyncSpeculator
from headstart.speculation.started_call import StartedCall
from headstart.speculation.turn import Turn
from tests.client.speculation.turns import CONTEXT, Log, speculate

THINKS_S = 0.15
TAKES_S = {"search": 0.2, "lookup": 0.1}
PAIRS = 20
TOLERANCE_S = 0.05
"""For a machine that is busy with other things."""


async def make(tool: str, arguments: Mapping[str, object]) -> str:
    await asyncio.sleep(TAKES_S[tool])
    return tool


async def call_tool(trying: Turn[str], call: RequestedCall, match: StartedCall[str] | None) -> None:
    try:
        if match is not None:
            await match.result()
            return
    except GuessFailed:
        pass
    await make(call.tool, call.arguments)
    trying.finished(call.id)


async def lasts_s(speculator: AsyncSpeculator, guesses: list[GuessedCall]) -> float:
    """Return how long a turn with two calls in parallel lasts."""
    begun = time.perf_counter()
    async with speculator.turn(CONTEXT, guesses, make, limit=2) as trying:
        await asyncio.sleep(THINKS_S)
        calls = [RequestedCall(tool, tool, {}) for tool in TAKES_S]
        matches = trying.settle(calls)
        await asyncio.gather(*(call_tool(trying, call, matches.get(call.id)) for call in calls))
    return time.perf_counter() - begun


@pytest.mark.parametrize(
    ("guessed", "saves_s"), [(["search"], 0.1), (["lookup"], 0.0), (["search", "lookup"], 0.15)]
)
def test_a_hit_delays_nothing_and_saves_what_is_accounted(
    guessed: list[str], saves_s: float
) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        guesses = [GuessedCall(tool, {}, 0.9) for tool in guessed]
        pairs = []
        for _ in range(4):  # few at once: the machine is to be idle
            both = [(lasts_s(speculator, []), lasts_s(speculator, guesses)) for _ in range(5)]
            lasted = await asyncio.gather(*(each for pair in both for each in pair))
            pairs += list(zip(lasted[::2], lasted[1::2], strict=True))
        assert len(pairs) == PAIRS
        assert all(with_guess <= without + TOLERANCE_S for without, with_guess in pairs)
        saved = median(without - with_guess for without, with_guess in pairs)
        gains = [event["data"]["result"]["gain_ms"] for event in log.of("task_complete")]
        assert len(gains) == PAIRS * len(guessed)
        accounted = sum(gains) / PAIRS / 1000.0
        assert accounted == pytest.approx(saves_s, abs=TOLERANCE_S)
        assert saved >= 0.8 * accounted - TOLERANCE_S / 2

    speculate(test, allowed=set(TAKES_S))
