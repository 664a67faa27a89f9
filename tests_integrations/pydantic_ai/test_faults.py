"""Cancelled runs, faults, and that speculating never takes longer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import timed_pairs
from fake_pydantic_agent import agent_of, call, slow_tool, speculating, tool_results
from faulty_runs import (
    RUNS,
    STARTED_AT_LEAST,
    Faults,
    check_events,
    outcomes_of,
    timeout_after,
    until,
)
from pydantic_ai import ModelRetry, Tool
from scripted import SpooledEvents

SCRIPT = [[call("search", "a", "c1"), call("lookup", "b", "c2")], "All done."]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after_s", [0.02, 0.07])
def test_a_cancelled_run_leaves_nothing_open(
    events: SpooledEvents, after_s: float, stream: bool
) -> None:
    received: list[Any] = []
    capability = speculating(events, received=received)
    agent = agent_of(capability, SCRIPT)

    async def ask() -> None:
        async with timeout_after(lambda: received, after_s):
            if stream:
                async with agent.run_stream("Where?") as response:
                    await response.get_output()
            else:
                await agent.run("Where?")

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await ask()
        assert capability.setup.speculator.stats()["open"] == 0
        await asyncio.sleep(0.05)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    assert events.kinds()[-1] == "end aborted"


def test_an_iteration_that_is_left_leaves_nothing_open(events: SpooledEvents) -> None:
    capability = speculating(events)

    async def run() -> None:
        async with agent_of(capability, SCRIPT).iter("Where?") as steps:
            async for node in steps:
                if type(node).__name__ == "CallToolsNode":
                    break
        assert capability.setup.speculator.stats()["open"] == 0

    asyncio.run(run())
    assert events.kinds()[-1].startswith("end")


def faulty_tool(name: str, faults: Faults) -> Tool[Any]:
    async def made(query: str) -> str:
        return await faults(name)

    return Tool(made, name=name, max_retries=5)


def test_a_thousand_faulty_runs(events: SpooledEvents) -> None:
    faults = Faults(7, retry=ModelRetry("again"))
    guesses = [[("search", {"query": "a"}), ("lookup", {"query": "wrong"})]] * 2
    capability = speculating(events, *guesses)
    script = [SCRIPT[0], [call("search", "a", "c3")], "All done."]
    agent = agent_of(
        capability, script, faulty_tool("search", faults), faulty_tool("lookup", faults),
        model={"thinks_s": 0.001, "before": faults},
    )  # fmt: skip

    async def one(number: int) -> None:
        found = tool_results((await agent.run("Where?")).all_messages())
        texts = [text for _, text in found if "again" not in str(text)]
        assert len(texts) == len(set(texts)), "each result is used once"

    async def run() -> None:
        outcomes = await outcomes_of(one)
        assert len(outcomes) == 3, outcomes
        stats = capability.setup.speculator.stats()
        assert stats["open"] == 0, stats
        assert stats["started"] >= STARTED_AT_LEAST, stats
        await capability.close()
        await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(run())
    assert len(check_events(events)) > RUNS * 0.9, "the others were cancelled before they began"


@timed_pairs.cases
def test_two_parallel_calls_with_one_guess_take_no_longer(
    events: SpooledEvents, guess: str, search_s: float
) -> None:
    tools = [slow_tool("search", search_s), slow_tool("lookup", timed_pairs.LOOKUP_S)]
    with_guess = agent_of(speculating(events, [("search", {"query": guess})]), SCRIPT, *tools)
    without_guess = agent_of(None, SCRIPT, *tools)
    with asyncio.Runner() as loop:
        timed_pairs.check_pairs(
            lambda: loop.run(with_guess.run("Where?")),
            lambda: loop.run(without_guess.run("Where?")),
            guess,
            search_s,
        )
