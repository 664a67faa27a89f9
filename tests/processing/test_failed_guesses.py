"""What is learned of guessed calls that fail: they save nothing, so they are credited nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headstart.speculation.speculator import AsyncSpeculator
from learners.registry import POLICIES
from processing.config import LearningConfig
from processing.contexts.thresholds import threshold_from_row
from processing.state.rows import context_key
from processing.task import PartitionTask
from tests.client.speculation.turns import ARGUMENTS, Log, resolve, speculate, turn
from tests.processing.building import EPOCH, NOW, Table, fetch

COUNT = 100


async def fails() -> str:
    raise ConnectionError("503 from the tool")


async def says_that_it_failed() -> dict[str, bool]:
    return {"isError": True}


async def answers() -> str:
    return "found"


def learned(policy: str, call: Callable[[], Any]) -> Any:
    """Return the threshold of a context whose right guesses are all run with `call`."""
    events: list[dict[str, Any]] = []
    now = 0.0

    async def takes_400_ms() -> Any:
        nonlocal now
        now += 0.4
        return await call()

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        for _ in range(COUNT):
            async with turn(speculator, takes_400_ms, 0.95, gain=400.0, cost=600.0) as trying:
                await resolve(trying, "search", ARGUMENTS)
        events.extend(log.events)

    speculate(test, wasted_per_minute=1e9, clock=lambda: now)
    table: Table = {}
    core = PartitionTask(0, 1, EPOCH, LearningConfig(POLICIES[policy]), table.get)
    core.restore([])
    core.apply(fetch([{**event, "tenant": "acme", "timestamp": NOW} for event in events]))
    table.update(core.commit().rows)
    key = context_key("acme", "workflow_type=refund")
    return threshold_from_row(key, table[key])


@pytest.mark.parametrize("policy", ["hops", "ema", "td", "meta"])
@pytest.mark.parametrize("call", [fails, says_that_it_failed])
def test_a_failed_guess_is_credited_nothing(policy: str, call: Callable[[], Any]) -> None:
    failed, hit = learned(policy, call), learned(policy, answers)
    assert (failed.outcomes, hit.outcomes) == (COUNT, COUNT)
    counts = failed.counts
    assert (counts.speculative, counts.speculative_right, counts.saved) == (COUNT, 0, 0)
    assert counts.wasted == COUNT * 600_000
    assert (hit.counts.speculative_right, hit.counts.wasted) == (COUNT, 0)
    assert failed.speculate > hit.speculate
    assert failed.speculate > 0.9
