"""What is never guessed, and what other middleware decides."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import fake_agent
import pytest
from fake_agent import ScriptedModel, asked, call, slow_tool, tool_results
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    PIIMiddleware,
    ToolRetryMiddleware,
)
from langchain.tools import InjectedState, ToolRuntime
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.langchain import SpeculationMiddleware

GUESS = [("search", {"query": "order 7"})]
SCRIPT = [[call("search", "order 7", "c1")], "It is on its way."]


def speculating(events: SpooledEvents) -> SpeculationMiddleware:
    return SpeculationMiddleware(setup=set_up(events, Script(GUESS), read_only=["search"]))


@tool("search")
def with_runtime(query: str, runtime: ToolRuntime) -> str:
    """Search."""
    return f"{len(runtime.state['messages'])} messages"


@tool("search")
def with_state(query: str, messages: Annotated[list[Any], InjectedState("messages")]) -> str:
    """Search."""
    return f"{len(messages)} messages"


@tool("search")
def with_config(query: str, config: RunnableConfig) -> str:
    """Search."""
    return f"{'configurable' in config}"


@pytest.mark.parametrize("given", [with_runtime, with_state, with_config])
def test_a_tool_that_the_graph_fills_in_is_not_guessed(
    events: SpooledEvents, given: BaseTool
) -> None:
    agent = create_agent(ScriptedModel(script=SCRIPT), [given], middleware=[speculating(events)])
    state = asyncio.run(agent.ainvoke(asked()))
    assert tool_results(state)[0][2] == "success"
    assert events.kinds() == ["search ok", "end success"]


@tool("search")
def approving(query: str) -> str:
    """Search, after asking a person."""
    from langgraph.types import interrupt

    fake_agent.RAN.append(("search", query))
    return str(interrupt("may I?"))


def test_an_interrupt_in_a_tool_is_not_raised_by_a_guess(events: SpooledEvents) -> None:
    agent = create_agent(
        ScriptedModel(script=SCRIPT), [approving], middleware=[speculating(events)],
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    config: Any = {"configurable": {"thread_id": "1"}}
    state = agent.invoke(asked(), config)
    assert state["__interrupt__"][0].value == "may I?"
    state = agent.invoke(Command(resume="yes"), config)
    assert tool_results(state) == [("c1", "yes", "success")]
    assert events.kinds() == ["start search", "failed search", "search ok", "end success"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_tool_that_a_person_approves_is_never_started(
    events: SpooledEvents, mode: Any, decision: str
) -> None:
    fake_agent.RAN.clear()
    person = HumanInTheLoopMiddleware(interrupt_on={"search": True}, interrupt_mode=mode)
    agent = create_agent(
        ScriptedModel(script=SCRIPT), [slow_tool("search")],
        middleware=[person, speculating(events)], checkpointer=InMemorySaver(),
    )  # fmt: skip
    config: Any = {"configurable": {"thread_id": "1"}}
    state = agent.invoke(asked(), config)
    assert "__interrupt__" in state
    assert fake_agent.RAN == [], "nothing before the decision"
    answer = {"type": decision}
    agent.invoke(Command(resume={"decisions": [answer]} if mode == "batched" else answer), config)
    assert ([("search", "order 7")] if decision == "approve" else []) == fake_agent.RAN
    assert "start search" not in events.kinds()


def test_an_agent_that_pauses_before_its_tools_starts_nothing(events: SpooledEvents) -> None:
    fake_agent.RAN.clear()
    agent = create_agent(
        ScriptedModel(script=SCRIPT), [slow_tool("search")], middleware=[speculating(events)],
        checkpointer=InMemorySaver(), interrupt_before=["tools"],
    )  # fmt: skip
    config: Any = {"configurable": {"thread_id": "1"}}
    agent.invoke(asked(), config)
    assert fake_agent.RAN == []
    state = agent.invoke(None, config)
    assert tool_results(state) == [("c1", "search found order 7", "success")]
    assert events.kinds() == ["search ok", "end success"]


class Guard(AgentMiddleware[Any, Any, Any]):
    """Refuses every call."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        raise PermissionError("refused")


def test_middleware_listed_after_it_is_not_bypassed(
    events: SpooledEvents, caplog: pytest.LogCaptureFixture
) -> None:
    fake_agent.RAN.clear()
    with caplog.at_level(logging.ERROR):
        agent = create_agent(
            ScriptedModel(script=SCRIPT), [slow_tool("search")],
            middleware=[speculating(events), Guard()],
        )  # fmt: skip
    assert "must be listed last: its answers would bypass Guard" in caplog.text
    with pytest.raises(PermissionError):
        agent.invoke(asked())
    assert fake_agent.RAN == []


def test_middleware_that_was_hidden_is_not_bypassed(
    events: SpooledEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headstart.integrations.langchain import middleware

    monkeypatch.setattr(middleware, "calling_list", lambda: None)
    agent = create_agent(
        ScriptedModel(script=SCRIPT), [slow_tool("search")],
        middleware=[speculating(events), Guard()],
    )  # fmt: skip
    with pytest.raises(PermissionError):
        agent.invoke(asked())


def test_middleware_listed_before_it_sees_answers(events: SpooledEvents) -> None:
    agent = create_agent(
        ScriptedModel(script=SCRIPT), [slow_tool("search")],
        middleware=[Guard(), speculating(events)],
    )  # fmt: skip
    with pytest.raises(PermissionError):
        agent.invoke(asked())


def test_results_of_guesses_are_redacted_too(events: SpooledEvents) -> None:
    @tool("search")
    def mail(query: str) -> str:
        """Search."""
        return "ask jane@example.org"

    pii = PIIMiddleware("email", apply_to_tool_results=True)
    agent = create_agent(
        ScriptedModel(script=SCRIPT), [mail], middleware=[pii, speculating(events)]
    )
    state = agent.invoke(asked())
    assert tool_results(state) == [("c1", "ask [REDACTED_EMAIL]", "success")]
    assert "hit search" in events.kinds()


def test_a_retry_after_a_failed_guess(events: SpooledEvents) -> None:
    tries: list[str] = []

    @tool("search")
    def flaky(query: str) -> str:
        """Search."""
        tries.append(query)
        if len(tries) < 3:
            raise ValueError("no connection")
        return "found"

    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    model = ScriptedModel(script=SCRIPT, until=lambda: tries)
    agent = create_agent(model, [flaky], middleware=[retry, speculating(events)])
    state = agent.invoke(asked())
    assert tool_results(state) == [("c1", "found", "success")]
    assert events.kinds() == [
        "start search", "failed search", "search error", "search ok", "end success"
    ]  # fmt: skip
