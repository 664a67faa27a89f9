"""An agent of `create_agent`, in an event loop and in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fake_agent
import pytest
from fake_agent import ScriptedModel, asked, call, slow_tool, tool_results
from langchain.agents import create_agent
from scripted import Script, SpooledEvents, set_up, wait_until

from headstart.integrations.langchain import SpeculationMiddleware

Ask = Callable[[Any, Any], dict[str, Any]]


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    fake_agent.RAN.clear()
    yield
    fake_agent.RAN.clear()


def in_loop(agent: Any, given: Any) -> dict[str, Any]:
    return asyncio.run(agent.ainvoke(given))


def in_threads(agent: Any, given: Any) -> dict[str, Any]:
    return agent.invoke(given)


@pytest.fixture(params=[in_loop, in_threads], ids=["loop", "threads"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param


def speculating(events: SpooledEvents, *guesses: Sequence[Any], **more: Any) -> Any:
    setup = set_up(events, Script(*guesses), read_only=["search", "lookup"], **more)
    return SpeculationMiddleware(setup=setup)


def stats(middleware: SpeculationMiddleware, ask: Ask) -> dict[str, float]:
    setup = middleware.hooks.setup
    return (setup.speculator if ask is in_loop else setup.thread_speculator).stats()


ONE_CALL = [[call("search", "order 7", "c1")], "It is on its way."]


def test_a_right_guess_answers(events: SpooledEvents, ask: Ask) -> None:
    middleware = speculating(events, [("search", {"query": "order 7"})])
    agent = create_agent(
        ScriptedModel(script=ONE_CALL), [slow_tool("search")], middleware=[middleware]
    )
    state = ask(agent, asked())
    assert tool_results(state) == [("c1", "search found order 7", "success")]
    assert fake_agent.RAN == [("search", "order 7")], "made once"
    assert events.kinds() == ["start search", "hit search", "end success"]
    assert stats(middleware, ask)["open"] == 0
    hit = events.read()[1]
    assert hit["data"]["result"]["gain_ms"] > 10
    end = events.read()[2]["data"]
    assert (end["query"], end["response"]) == ("Where is order 7?", "It is on its way.")


def test_a_wrong_guess_leaves_no_trace(events: SpooledEvents, ask: Ask) -> None:
    model = ScriptedModel(script=ONE_CALL)
    plain = ask(create_agent(model, [slow_tool("search")]), asked())
    fake_agent.RAN.clear()
    middleware = speculating(events, [("search", {"query": "order 8"})])
    state = ask(create_agent(model, [slow_tool("search")], middleware=[middleware]), asked())
    assert tool_results(state) == tool_results(plain)
    assert [each.text for each in state["messages"]] == [each.text for each in plain["messages"]]
    assert fake_agent.RAN == [("search", "order 8"), ("search", "order 7")]
    assert events.kinds() == ["start search", "miss search", "search ok", "end success"]


def test_parallel_calls_with_one_hit(events: SpooledEvents, ask: Ask) -> None:
    script = [[call("search", "a", "c1"), call("lookup", "b", "c2")], "Done."]
    middleware = speculating(events, [("search", {"query": "a"})])
    tools = [slow_tool("search"), slow_tool("lookup")]
    state = ask(create_agent(ScriptedModel(script=script), tools, middleware=[middleware]), asked())
    assert tool_results(state) == [
        ("c1", "search found a", "success"), ("c2", "lookup found b", "success")
    ]  # fmt: skip
    assert sorted(fake_agent.RAN) == [("lookup", "b"), ("search", "a")]
    assert sorted(events.kinds()) == ["end success", "hit search", "lookup ok", "start search"]
    assert sorted(events.calls()) == [("lookup", {"query": "b"}), ("search", {"query": "a"})]


def test_a_failed_guess_is_called_again(events: SpooledEvents, ask: Ask) -> None:
    middleware = speculating(events, [("search", {"query": "order 7"})])
    tool = slow_tool("search", error=ValueError("no connection"))
    tool.handle_tool_error = True
    agent = create_agent(ScriptedModel(script=ONE_CALL), [tool], middleware=[middleware])
    with pytest.raises(ValueError, match="no connection"):
        ask(agent, asked())
    assert fake_agent.RAN == [("search", "order 7")] * 2
    assert events.kinds() == ["start search", "failed search", "search error"]
    assert stats(middleware, ask)["open"] == 0


def test_a_model_that_raises_leaves_nothing_open(events: SpooledEvents, ask: Ask) -> None:
    script = [[call("search", "order 7", "c1")], RuntimeError("overloaded")]
    guess = [("search", {"query": "order 7"})]
    middleware = speculating(events, guess, guess)
    agent = create_agent(
        ScriptedModel(script=script), [slow_tool("search")], middleware=[middleware]
    )
    with pytest.raises(RuntimeError, match="overloaded"):
        ask(agent, asked())
    assert stats(middleware, ask)["open"] == 0
    asyncio.run(middleware.close())
    assert events.kinds()[-1] == "end aborted"


def test_the_predictor_receives_everything(events: SpooledEvents, ask: Ask) -> None:
    received: list[Any] = []
    setup = set_up(events, Script(received=received))
    agent = create_agent(
        ScriptedModel(script=[*ONE_CALL, "You are welcome."]), [slow_tool("search")],
        middleware=[SpeculationMiddleware(setup=setup)],
    )  # fmt: skip
    state = ask(agent, asked())
    ask(agent, {"messages": [*state["messages"], ("user", "Thank you.")]})
    wait_until(lambda: len(received) == 8)  # it works in a thread of its own
    assert received == [
        ("user", "Where is order 7?"),
        [("search", {"query": "order 7"})],
        ("search", "search found order 7", False),
        [],
        ("said", "It is on its way."),
        ("user", "Thank you."),
        [],
        ("said", "You are welcome."),
    ]
