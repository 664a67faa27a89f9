"""Streams, cancelled runs, faults, and that speculating never takes longer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import timed_pairs
from fake_agent import ScriptedModel, asked, call, slow_tool, tool_results
from faulty_runs import RUNS, STARTED_AT_LEAST, Faults, check_events, outcomes_of, until
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool, tool
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.langchain import SpeculationMiddleware

GUESS = [("search", {"query": "a"})]
SCRIPT = [[call("search", "a", "c1"), call("lookup", "b", "c2")], "Done."]


def speculating(events: SpooledEvents, *guesses: Any) -> SpeculationMiddleware:
    script = Script(*(guesses or [GUESS]))
    return SpeculationMiddleware(setup=set_up(events, script, read_only=["search", "lookup"]))


def agent_of(middleware: Any, script: Any = SCRIPT, **model: Any) -> Any:
    tools = [slow_tool("search"), slow_tool("lookup")]
    return create_agent(ScriptedModel(script=script, **model), tools, middleware=middleware)


def shown(chunk: Any) -> Any:
    """Return a chunk of a stream without its random ids."""
    return [
        (node, [(each.type, each.text) for each in update["messages"]])
        for node, update in chunk.items()
    ]


def test_streams_are_the_same_with_a_right_and_with_a_wrong_guess(events: SpooledEvents) -> None:
    def of(middleware: Any) -> Any:
        return sorted(map(shown, agent_of(middleware).stream(asked(), stream_mode="updates")))

    async def in_loop(middleware: Any) -> Any:
        stream = agent_of(middleware).astream(asked(), stream_mode="updates")
        return sorted([shown(chunk) async for chunk in stream])

    plain = of([])
    for query in ("a", "wrong"):
        guess = [("search", {"query": query})]
        assert of([speculating(events, guess)]) == plain
        assert asyncio.run(in_loop([speculating(events, guess)])) == plain
    kinds = events.kinds()
    assert (kinds.count("hit search"), kinds.count("miss search")) == (2, 2)


def test_a_wrong_guess_writes_nothing_to_streams(events: SpooledEvents) -> None:
    from langgraph.config import get_stream_writer

    @tool("search")
    def writing(query: str) -> str:
        """Search."""
        get_stream_writer()({"progress": query})
        return "found"

    script = [[call("search", "a", "c1")], "Done."]
    agent = create_agent(
        ScriptedModel(script=script), [writing],
        middleware=[speculating(events, [("search", {"query": "wrong"})])],
    )  # fmt: skip
    custom = list(agent.stream(asked(), stream_mode="custom"))
    assert custom == [{"progress": "a"}]
    messages = [message for message, _ in agent.stream(asked(), stream_mode="messages")]
    assert "wrong" not in str(messages)


def test_an_error_that_the_model_gets_is_no_hit(events: SpooledEvents) -> None:
    begun: list[str] = []

    @tool("search")
    def declared(query: str) -> str:
        """Search."""
        from langchain_core.tools import ToolException

        begun.append(query)
        raise ToolException("there is no order 7")

    declared.handle_tool_error = True
    model = ScriptedModel(script=[[call("search", "a", "c1")], "Done."], until=lambda: begun)
    agent = create_agent(model, [declared], middleware=[speculating(events)])
    state = agent.invoke(asked())
    assert tool_results(state) == [("c1", "there is no order 7", "error")]
    assert events.kinds() == ["start search", "failed search", "search error", "end success"]


@pytest.mark.parametrize("after_s", [0.02, 0.07])
def test_a_cancelled_run_leaves_nothing_open(events: SpooledEvents, after_s: float) -> None:
    middleware = speculating(events)

    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(after_s):
                await agent_of([middleware]).ainvoke(asked())
        await asyncio.sleep(0.05)
        assert middleware.hooks.setup.speculator.stats()["open"] == 0
        assert len(asyncio.all_tasks()) == 1
        await middleware.close()

    asyncio.run(run())


def faulty_tool(name: str, faults: Faults) -> BaseTool:
    @tool(name)
    async def made(query: str) -> str:
        """Search."""
        return await faults(name)

    return made


class FaultyModel(ScriptedModel):
    """A model that fails as its tools do."""

    faults: Any

    async def _agenerate(self, messages: Any, *_: Any, **more: Any) -> Any:
        await self.faults("model")
        return self._answer(messages)


def test_a_thousand_faulty_runs(events: SpooledEvents) -> None:
    faults = Faults(7)
    guesses = [[("search", {"query": "a"}), ("lookup", {"query": "wrong"})]] * 2
    middleware = speculating(events, *guesses)
    middleware.hooks.left_s = 0.2
    script = [SCRIPT[0], [call("search", "a", "c3")], "Done."]
    agent = create_agent(
        FaultyModel(script=script, faults=faults),
        [faulty_tool("search", faults), faulty_tool("lookup", faults)],
        middleware=[middleware],
    )

    async def one(number: int) -> None:
        texts = [text for _, text, _ in tool_results(await agent.ainvoke(asked()))]
        assert len(texts) == len(set(texts)) == 3, "each result is used once"

    async def run() -> None:
        outcomes = await outcomes_of(one)
        assert len(outcomes) == 3, outcomes
        speculator = middleware.hooks.setup.speculator
        await until(lambda: not speculator.stats()["open"])  # runs cancelled between nodes
        assert speculator.stats()["started"] >= STARTED_AT_LEAST, speculator.stats()
        await middleware.close()
        await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(run())
    assert len(check_events(events)) == RUNS


class Empty(AgentMiddleware[Any, Any, Any]):
    """Does nothing; LangChain takes some milliseconds to call its hooks."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
@timed_pairs.cases
def test_two_parallel_calls_with_one_guess_take_no_longer(
    events: SpooledEvents, guess: str, search_s: float, threads: bool
) -> None:
    tools = [slow_tool("search", search_s), slow_tool("lookup", timed_pairs.LOOKUP_S)]
    model = ScriptedModel(script=SCRIPT)
    middleware = [speculating(events, [("search", {"query": guess})])]
    with_guess = create_agent(model, tools, middleware=middleware)
    without_guess = create_agent(model, tools, middleware=[Empty()])
    with asyncio.Runner() as loop:

        def run(agent: Any) -> object:
            return agent.invoke(asked()) if threads else loop.run(agent.ainvoke(asked()))

        timed_pairs.check_pairs(
            lambda: run(with_guess), lambda: run(without_guess), guess, search_s
        )
