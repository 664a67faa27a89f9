"""An agent of Pydantic AI with right, wrong and failing guesses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import fake_pydantic_agent
import pytest
from fake_pydantic_agent import GUESS, agent_of, call, slow_tool, speculating, tool_results
from pydantic_ai import Agent, AgentRunError, ModelRetry, RunContext, Tool
from scripted import SpooledEvents, wait_until

Ask = Callable[[Agent[Any, Any]], Any]
ONE_CALL = [[call("search", "a", "c1")], "It is on its way."]
TWO_CALLS = [[call("search", "a", "c1"), call("lookup", "b", "c2")], "All done."]


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    fake_pydantic_agent.RAN.clear()
    yield
    fake_pydantic_agent.RAN.clear()


def in_loop(agent: Agent[Any, Any]) -> Any:
    return asyncio.run(agent.run("Where is order 7?")).all_messages()


def sync(agent: Agent[Any, Any]) -> Any:
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        try:
            return agent.run_sync("Where is order 7?").all_messages()
        finally:
            asyncio.set_event_loop(None)


def streamed(agent: Agent[Any, Any]) -> Any:
    async def run() -> Any:
        async with agent.run_stream("Where is order 7?") as response:
            text = [piece async for piece in response.stream_text(debounce_by=None)]
            assert len(text) > 1, "the text was streamed"
            return response.all_messages()

    return asyncio.run(run())


def iterated(agent: Agent[Any, Any]) -> Any:
    async def run() -> Any:
        async with agent.iter("Where is order 7?") as steps:
            async for _ in steps:
                pass
        assert steps.result is not None
        return steps.result.all_messages()

    return asyncio.run(run())


@pytest.fixture(params=[in_loop, sync, streamed, iterated])
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param


def nothing_open(capability: Any) -> bool:
    return capability.setup.speculator.stats()["open"] == 0


def test_a_right_guess_answers(events: SpooledEvents, ask: Ask) -> None:
    capability = speculating(events)
    messages = ask(agent_of(capability, ONE_CALL))
    assert tool_results(messages) == [("c1", "search found a")]
    assert fake_pydantic_agent.RAN == [("search", "a")], "made once"
    assert events.kinds() == ["start search", "hit search", "end success"]
    assert nothing_open(capability)
    _, hit, end = events.read()
    assert hit["data"]["result"]["gain_ms"] > 10
    assert end["data"]["query"] == "Where is order 7?"
    assert end["data"]["response"].strip() == "It is on its way."


def test_a_wrong_guess_leaves_no_trace(events: SpooledEvents, ask: Ask) -> None:
    plain = ask(agent_of(None, ONE_CALL))
    fake_pydantic_agent.RAN.clear()
    messages = ask(agent_of(speculating(events, [("search", {"query": "b"})]), ONE_CALL))
    assert tool_results(messages) == tool_results(plain)
    assert len(messages) == len(plain)
    assert fake_pydantic_agent.RAN == [("search", "b"), ("search", "a")]
    assert events.kinds() == ["start search", "miss search", "search ok", "end success"]


@pytest.mark.parametrize("query", ["a", "wrong"])
def test_a_guess_is_not_counted_as_a_call(events: SpooledEvents, query: str) -> None:
    agent = agent_of(speculating(events, [("search", {"query": query})]), ONE_CALL)
    assert asyncio.run(agent.run("Where?")).usage.tool_calls == 1


@pytest.mark.parametrize(("query", "requests"), [("a", 1), ("wrong", 1)])
def test_what_a_tool_uses_is_counted_once(events: SpooledEvents, query: str, requests: int) -> None:
    async def search(ctx: RunContext[Any], query: str) -> str:
        ctx.usage.requests += 1
        return "found"

    agent = agent_of(speculating(events, [("search", {"query": query})]), ONE_CALL, Tool(search))
    assert asyncio.run(agent.run("Where?")).usage.requests == 2 + requests


def test_parallel_calls_with_one_hit(events: SpooledEvents, ask: Ask) -> None:
    messages = ask(agent_of(speculating(events), TWO_CALLS))
    assert tool_results(messages) == [("c1", "search found a"), ("c2", "lookup found b")]
    assert sorted(fake_pydantic_agent.RAN) == [("lookup", "b"), ("search", "a")]
    assert sorted(events.kinds()) == ["end success", "hit search", "lookup ok", "start search"]
    assert sorted(events.calls()) == [("lookup", {"query": "b"}), ("search", {"query": "a"})]


def test_a_tool_that_raises_is_called_again(events: SpooledEvents, ask: Ask) -> None:
    capability = speculating(events)
    agent = agent_of(capability, ONE_CALL, slow_tool("search", error=OSError("no connection")))
    with pytest.raises(OSError, match="no connection"):
        ask(agent)
    assert fake_pydantic_agent.RAN == [("search", "a")] * 2
    assert events.kinds() == ["start search", "failed search", "search error", "end failure"]
    assert nothing_open(capability)


def test_a_retry_that_a_tool_asks_for(events: SpooledEvents, ask: Ask) -> None:
    """The guess that fails does not count as one of the tool's retries, of which it has one."""
    tries: list[str] = []

    async def search(query: str) -> str:
        tries.append(query)
        if len(tries) < 3:
            raise ModelRetry("the index is being built")
        return "found"

    script = [[call("search", "a", "c1")], [call("search", "a", "c2")], "All done."]
    messages = ask(agent_of(speculating(events), script, Tool(search, max_retries=1)))
    assert [call_id for call_id, _ in tool_results(messages)] == ["c1", "c2"]
    assert events.kinds() == [
        "start search", "failed search", "search error", "search ok", "end success"
    ]  # fmt: skip


def test_a_model_that_raises_leaves_nothing_open(events: SpooledEvents, ask: Ask) -> None:
    capability = speculating(events, GUESS, GUESS)
    agent = agent_of(capability, [ONE_CALL[0], AgentRunError("overloaded")])
    with pytest.raises(AgentRunError, match="overloaded"):
        ask(agent)
    assert nothing_open(capability)
    assert events.kinds()[-1] == "end failure"


def test_arguments_that_are_not_valid_are_an_error(events: SpooledEvents) -> None:
    wrong = fake_pydantic_agent.ToolCallPart("search", {"number": 1}, tool_call_id="c1")
    script = [[wrong], [call("search", "a", "c2")], "All done."]
    asyncio.run(agent_of(speculating(events, [], []), script).run("Where?"))
    assert events.kinds() == ["search error", "search ok", "end success"]


def test_the_predictor_receives_everything_of_a_conversation(events: SpooledEvents) -> None:
    received: list[Any] = []
    agent = agent_of(speculating(events, [], received=received), [*ONE_CALL, "You are welcome."])

    async def run() -> None:
        first = await agent.run("Where is order 7?")
        await agent.run("Thank you.", message_history=first.all_messages())

    asyncio.run(run())
    wait_until(lambda: len(received) == 8)  # it works in a thread of its own
    assert received == [
        ("user", "Where is order 7?"),
        [("search", {"query": "a"})],
        ("search", "search found a", False),
        [],
        ("said", "It is on its way."),
        ("user", "Thank you."),
        [],
        ("said", "You are welcome."),
    ]
