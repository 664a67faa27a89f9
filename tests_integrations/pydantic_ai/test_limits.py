"""What is never guessed, and what other capabilities and toolsets decide."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import fake_pydantic_agent
import pytest
from fake_pydantic_agent import agent_of, call, slow_tool, speculating, tool_results
from pydantic_ai import (
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import ApprovalRequiredToolset, FunctionToolset
from scripted import SpooledEvents

SCRIPT = [[call("search", "a", "c1")], "All done."]


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    fake_pydantic_agent.RAN.clear()
    yield
    fake_pydantic_agent.RAN.clear()


def approved_later(agent: Any, *, approve: bool) -> Any:
    """Run until a person is asked, and go on with the decision."""

    async def run() -> Any:
        asked = await agent.run("Where?")
        assert isinstance(asked.output, DeferredToolRequests)
        assert fake_pydantic_agent.RAN == [], "nothing before the decision"
        results = DeferredToolResults(approvals={"c1": approve})
        return await agent.run(message_history=asked.all_messages(), deferred_tool_results=results)

    return asyncio.run(run())


@pytest.mark.parametrize("approve", [True, False])
def test_a_tool_that_requires_approval_is_never_started(
    events: SpooledEvents, approve: bool
) -> None:
    tool = slow_tool("search", requires_approval=True)
    output = [str, DeferredToolRequests]
    approved_later(agent_of(speculating(events), SCRIPT, tool, output_type=output), approve=approve)
    assert ([("search", "a")] if approve else []) == fake_pydantic_agent.RAN
    kinds = events.kinds()
    assert "start search" not in kinds
    assert ("search ok" in kinds) == approve
    assert [kind for kind in kinds if kind.startswith("end")] == ["end partial", "end success"]


def test_a_toolset_that_requires_approval_is_not_bypassed(events: SpooledEvents) -> None:
    """It declares nothing, so a guess is started; the toolset raises before the tool runs."""
    tools = FunctionToolset([slow_tool("search")])
    asks = ApprovalRequiredToolset(tools, lambda ctx, tool, arguments: True)
    output = [str, DeferredToolRequests]
    agent = agent_of(
        speculating(events), SCRIPT, slow_tool("lookup"), toolsets=[asks], output_type=output
    )
    approved_later(agent, approve=True)
    assert fake_pydantic_agent.RAN == [("search", "a")]


def test_a_tool_that_asks_for_approval_itself_is_asked_again(events: SpooledEvents) -> None:
    async def search(ctx: RunContext[Any], query: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        fake_pydantic_agent.RAN.append(("search", query))
        return "found"

    output = [str, DeferredToolRequests]
    agent = agent_of(speculating(events), SCRIPT, Tool(search), output_type=output)
    approved_later(agent, approve=True)
    assert "failed search" in events.kinds()
    assert fake_pydantic_agent.RAN == [("search", "a")]


def test_a_sequential_tool_is_never_started(events: SpooledEvents) -> None:
    asyncio.run(agent_of(speculating(events), SCRIPT, slow_tool("search", sequential=True)).run(""))
    assert events.kinds() == ["search ok", "end success"]


def test_nothing_is_started_where_calls_are_made_one_by_one(events: SpooledEvents) -> None:
    with ToolManager.parallel_execution_mode("sequential"):
        asyncio.run(agent_of(speculating(events), SCRIPT).run("Where?"))
    assert events.kinds() == ["search ok", "end success"]


def test_a_call_behind_a_sequential_one_is_made_after_it(events: SpooledEvents) -> None:
    script = [[call("change", "b", "c1"), call("search", "a", "c2")], "All done."]
    tools = [slow_tool("change", sequential=True), slow_tool("search")]
    asyncio.run(agent_of(speculating(events), script, *tools).run("Where?"))
    assert fake_pydantic_agent.RAN == [("search", "a"), ("change", "b"), ("search", "a")]
    assert "hit search" not in events.kinds()


def test_a_tool_with_a_validator_of_its_own_is_not_guessed(events: SpooledEvents) -> None:
    async def check(ctx: RunContext[Any], query: str) -> None:
        assert query

    asyncio.run(
        agent_of(speculating(events), SCRIPT, slow_tool("search", args_validator=check)).run("")
    )
    assert events.kinds() == ["search ok", "end success"]


@pytest.mark.parametrize("way", ["emit", "enqueue"])
def test_a_guess_cannot_reach_the_run(events: SpooledEvents, way: str) -> None:
    from dataclasses import dataclass

    from pydantic_ai import CustomEvent

    @dataclass(kw_only=True)
    class Progress(CustomEvent):
        query: str

    begun = asyncio.Event()

    async def guess_begun(_: str) -> None:
        await begun.wait()

    async def search(ctx: RunContext[Any], query: str) -> str:
        begun.set()
        if way == "emit":
            await ctx.emit(Progress(query=query))
        else:
            ctx.enqueue(f"about {query}")
        return "found"

    capability = speculating(events, [("search", {"query": "wrong"})])
    agent = agent_of(capability, [*SCRIPT, "More."], Tool(search), model={"before": guess_begun})
    result = asyncio.run(agent.run("Where?"))
    assert "wrong" not in str(result.all_messages())
    assert "miss search" in events.kinds()


class Guard(AbstractCapability[Any]):
    """Refuses every call."""

    async def before_tool_execute(self, ctx: Any, **more: Any) -> Any:
        raise PermissionError("refused")


class Redaction(AbstractCapability[Any]):
    async def after_tool_execute(self, ctx: Any, *, result: Any, **more: Any) -> Any:
        return str(result).replace("found", "[removed]")


class Change(AbstractCapability[Any]):
    async def before_tool_execute(self, ctx: Any, *, args: Any, **more: Any) -> Any:
        return {"query": "changed"}


@pytest.mark.parametrize("first", [True, False])
def test_hooks_of_other_capabilities_are_not_bypassed(events: SpooledEvents, first: bool) -> None:
    def agent(other: Any) -> Any:
        listed = [speculating(events), other] if first else [other, speculating(events)]
        return agent_of(None, SCRIPT, capabilities=listed)

    with pytest.raises(PermissionError):
        asyncio.run(agent(Guard()).run("Where?"))
    result = asyncio.run(agent(Redaction()).run("Where?"))
    assert tool_results(result.all_messages()) == [("c1", "search [removed] a")]
    assert "hit search" in events.kinds()
    result = asyncio.run(agent(Change()).run("Where?"))
    assert tool_results(result.all_messages()) == [("c1", "search found changed")]
