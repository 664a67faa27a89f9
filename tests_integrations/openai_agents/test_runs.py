"""Runs of one agent, in each of the three ways to run it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import sdk_agent
from agents.exceptions import UserError
from agents.testing import ModelStep, ScriptedModel
from scripted import Script, SpooledEvents, set_up, wait_until
from sdk_agent import NO_TRACES, call, scripted, slow_tool, support_agent, tool_results

from agents import RunHooks, Runner
from headstart.integrations.openai_agents import SpeculationRunner

Run = Callable[..., Any]
FAILED = "An error occurred while running the tool. Please try again."


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    sdk_agent.RAN.clear()
    yield
    sdk_agent.RAN.clear()


def in_loop(runner: Any, agent: Any, given: Any = "Where is order 7?", **options: Any) -> Any:
    return asyncio.run(runner.run(agent, given, run_config=NO_TRACES, **options))


def streamed(runner: Any, agent: Any, given: Any = "Where is order 7?", **options: Any) -> Any:
    async def run() -> Any:
        result = runner.run_streamed(agent, given, run_config=NO_TRACES, **options)
        async for _ in result.stream_events():
            pass
        await asyncio.wait([result.run_loop_task])
        await asyncio.sleep(0)
        return result

    return asyncio.run(run())


def blocking(runner: Any, agent: Any, given: Any = "Where is order 7?", **options: Any) -> Any:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return runner.run_sync(agent, given, run_config=NO_TRACES, **options)
    finally:
        assert asyncio.all_tasks(loop) == set()
        loop.close()
        asyncio.set_event_loop(None)


@pytest.fixture(params=[in_loop, streamed, blocking], ids=["run", "run_streamed", "run_sync"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


def speculating(events: SpooledEvents, *guesses: Sequence[Any]) -> SpeculationRunner:
    return SpeculationRunner(setup=set_up(events, Script(*guesses), read_only=["search", "lookup"]))


GUESS = [("search", {"query": "order 7"})]
ONE_CALL = ([call("search", "order 7", "c1")], "It is on its way.")


def test_a_right_guess_answers(events: SpooledEvents, run: Run) -> None:
    runner = speculating(events, GUESS)
    result = run(runner, support_agent(scripted(*ONE_CALL), slow_tool("search")))
    assert tool_results(result) == [("c1", "search found order 7")]
    assert sdk_agent.RAN == [("search", "order 7")], "made once"
    assert events.kinds() == ["start search", "hit search", "end success"]
    assert runner.setup.speculator.stats()["open"] == 0
    assert events.read()[1]["data"]["result"]["gain_ms"] > 10
    end = events.read()[2]["data"]
    assert (end["query"], end["response"]) == ("Where is order 7?", "It is on its way.")


def test_a_wrong_guess_leaves_no_trace(events: SpooledEvents, run: Run) -> None:
    plain = run(Runner, support_agent(scripted(*ONE_CALL), slow_tool("search")))
    sdk_agent.RAN.clear()
    runner = speculating(events, [("search", {"query": "order 8"})])
    result = run(runner, support_agent(scripted(*ONE_CALL), slow_tool("search")))
    assert result.to_input_list() == plain.to_input_list()
    assert result.context_wrapper.usage == plain.context_wrapper.usage
    assert sdk_agent.RAN == [("search", "order 8"), ("search", "order 7")]
    assert events.kinds() == ["start search", "miss search", "search ok", "end success"]


def test_parallel_calls_with_one_hit(events: SpooledEvents, run: Run) -> None:
    model = scripted([call("search", "a", "c1"), call("lookup", "b", "c2")], "Done.")
    runner = speculating(events, [("search", {"query": "a"})])
    result = run(runner, support_agent(model, slow_tool("search"), slow_tool("lookup")))
    assert tool_results(result) == [("c1", "search found a"), ("c2", "lookup found b")]
    assert sorted(sdk_agent.RAN) == [("lookup", "b"), ("search", "a")]
    assert sorted(events.kinds()) == ["end success", "hit search", "lookup ok", "start search"]
    assert sorted(events.calls()) == [("lookup", {"query": "b"}), ("search", {"query": "a"})]


@pytest.mark.parametrize("text_of", [None, lambda context, error: f"failed: {error}"])
def test_an_error_that_the_model_gets_is_no_hit(
    events: SpooledEvents, run: Run, text_of: Any
) -> None:
    options = {} if text_of is None else {"failure_error_function": text_of}
    tool = slow_tool("search", error=ValueError("no connection"), **options)
    result = run(speculating(events, GUESS), support_agent(scripted(*ONE_CALL), tool))
    assert tool_results(result) == [("c1", FAILED if text_of is None else "failed: no connection")]
    assert sdk_agent.RAN == [("search", "order 7")] * 2
    assert events.kinds() == ["start search", "failed search", "search error", "end success"]


def test_a_tool_that_raises_ends_the_run(events: SpooledEvents, run: Run) -> None:
    tool = slow_tool("search", error=ValueError("no connection"), failure_error_function=None)
    runner = speculating(events, GUESS)
    with pytest.raises((ValueError, UserError), match="no connection"):
        run(runner, support_agent(scripted(*ONE_CALL), tool))
    assert events.kinds() == ["start search", "failed search", "search error", "end failure"]
    assert runner.setup.speculator.stats()["open"] == 0


def test_a_model_that_raises_leaves_nothing_open(events: SpooledEvents, run: Run) -> None:
    model = scripted([call("search", "order 7", "c1")], RuntimeError("overloaded"))
    runner = speculating(events, GUESS, GUESS)
    with pytest.raises(RuntimeError, match="overloaded"):
        run(runner, support_agent(model, slow_tool("search", 0.3)))
    assert runner.setup.speculator.stats()["open"] == 0
    assert events.kinds() == ["start search", "hit search", "start search", "end failure"]


def test_a_tool_that_times_out_is_an_error(events: SpooledEvents, run: Run) -> None:
    tool = slow_tool("search", 60.0, timeout=0.1)
    result = run(speculating(events, GUESS), support_agent(scripted(*ONE_CALL), tool))
    assert tool_results(result) == [("c1", "Tool 'search' timed out after 0.1 seconds.")]
    assert events.kinds() == ["start search", "failed search", "search error", "end success"]


class Noting(RunHooks[Any]):
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_llm_start(self, *_: Any) -> None:
        self.seen.append("model")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.seen.append(f"{tool.name}: {result}")


def test_the_callers_hooks_are_called(events: SpooledEvents, run: Run) -> None:
    hooks = Noting()
    agent = support_agent(scripted(*ONE_CALL), slow_tool("search"))
    run(speculating(events, GUESS), agent, hooks=hooks)
    assert hooks.seen == ["model", "search: search found order 7", "model"]


def test_the_predictor_receives_everything(events: SpooledEvents, run: Run) -> None:
    received: list[Any] = []
    runner = SpeculationRunner(setup=set_up(events, Script(received=received)))
    model = scripted(*ONE_CALL, "You are welcome.")
    result = run(runner, support_agent(model, slow_tool("search")))
    more = [*result.to_input_list(), {"role": "user", "content": "Thank you."}]
    run(runner, result.last_agent, more)
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


@pytest.mark.parametrize("after_s", [0.02, 0.07])
def test_a_cancelled_run_leaves_nothing_open(events: SpooledEvents, after_s: float) -> None:
    runner = speculating(events, GUESS)
    agent = support_agent(scripted(*ONE_CALL), slow_tool("search", 0.3))

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(after_s):
                await runner.run(agent, "Where?", run_config=NO_TRACES)
        await asyncio.sleep(0.05)
        assert runner.setup.speculator.stats()["open"] == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancelled())
    assert events.kinds()[-1] == "end aborted"


def test_a_cancelled_stream_leaves_nothing_open(events: SpooledEvents) -> None:
    runner = speculating(events, GUESS)
    agent = support_agent(scripted(*ONE_CALL), slow_tool("search", 0.3))

    async def cancelled() -> None:
        result = runner.run_streamed(agent, "Where?", run_config=NO_TRACES)
        await asyncio.sleep(0.02)
        result.cancel()
        await asyncio.wait([result.run_loop_task])
        await asyncio.sleep(0.05)
        assert runner.setup.speculator.stats()["open"] == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancelled())
    assert events.kinds()[-1] == "end aborted"


def test_run_sync_is_refused_in_an_event_loop(events: SpooledEvents) -> None:
    async def wrong() -> None:
        speculating(events).run_sync(support_agent(ScriptedModel([ModelStep()])), "Where?")

    with pytest.raises(ValueError, match=r"await run\(\)"):
        asyncio.run(wrong())
