"""Runs with injected faults, and that speculating never takes longer."""

from __future__ import annotations

import asyncio
from typing import Any

import timed_pairs
from agents.exceptions import UserError
from agents.testing import ModelStep, ScriptedModel, assistant_message
from faulty_runs import RUNS, STARTED_AT_LEAST, Faults, check_events, outcomes_of, until
from scripted import Script, SpooledEvents, set_up
from sdk_agent import NO_TRACES, call, scripted, slow_tool, support_agent, tool_results

from agents import Agent, Runner, function_tool
from headstart.integrations.openai_agents import SpeculationRunner

PARALLEL = [call("search", "a", "c1"), call("lookup", "b", "c2")]
SCRIPT = (PARALLEL, [call("search", "a", "c3")], "Done.")


def faulty_agent(faults: Faults) -> Agent[Any]:
    """Return an agent with a model and tools that fail; one raises, one returns a text."""

    async def search(query: str) -> str:
        return await faults("search")

    async def lookup(query: str) -> str:
        return await faults("lookup")

    async def answer(each: Any) -> Any:
        await faults("model")
        return [assistant_message(each)] if isinstance(each, str) else each

    model = ScriptedModel([ModelStep.respond(lambda _, each=each: answer(each)) for each in SCRIPT])
    tools = [function_tool(search, failure_error_function=None), function_tool(lookup)]
    return support_agent(model, *tools)


def test_faulty_runs(events: SpooledEvents) -> None:
    faults = Faults(7)
    guesses = [[("search", {"query": "a"}), ("lookup", {"query": "wrong"})]] * 2
    setup = set_up(events, Script(*guesses), read_only=["search", "lookup"])
    runner = SpeculationRunner(setup=setup)

    async def finished(number: int) -> Any:
        if number % 2:
            return await runner.run(faulty_agent(faults), "Where?", run_config=NO_TRACES)
        result = runner.run_streamed(faulty_agent(faults), "Where?", run_config=NO_TRACES)
        try:
            async for _ in result.stream_events():
                pass
        finally:
            result.cancel()
        return result

    async def one(number: int) -> None:
        result = await finished(number)
        texts = [text for _, text in tool_results(result) if "occurred" not in text]
        assert len(texts) == len(set(texts)), "each result is used once"

    async def run() -> None:
        outcomes = await outcomes_of(one, UserError)  # the SDK's: of a tool
        assert len(outcomes) == 4, outcomes
        await until(lambda: len(asyncio.all_tasks()) == 1)  # streams that were cancelled
        stats = setup.speculator.stats()
        assert stats["open"] == 0, stats
        assert stats["started"] >= STARTED_AT_LEAST, stats

    asyncio.run(run())
    assert len(check_events(events)) == RUNS


@timed_pairs.cases
def test_two_parallel_calls_with_one_guess_take_no_longer(
    events: SpooledEvents, guess: str, search_s: float
) -> None:
    tools = [slow_tool("search", search_s), slow_tool("lookup", timed_pairs.LOOKUP_S)]
    script = Script([("search", {"query": guess})])
    ours = SpeculationRunner(setup=set_up(events, script, read_only=["search", "lookup"]))
    with asyncio.Runner() as loop:

        def run(runner: Any) -> object:
            agent = support_agent(scripted(PARALLEL, "Done."), *tools)
            return loop.run(runner.run(agent, "Where?", run_config=NO_TRACES))

        timed_pairs.check_pairs(lambda: run(ours), lambda: run(Runner), guess, search_s)
