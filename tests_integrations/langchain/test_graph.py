"""A graph with a node for the model and a `ToolNode`."""

from __future__ import annotations

import asyncio
from typing import Any

import fake_agent
import pytest
from fake_agent import ScriptedModel, asked, call, slow_tool, tool_results
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.langchain import GraphSpeculation
from headstart.integrations.langchain.graph import answer_in

SCRIPT = [[call("search", "a", "c1"), call("lookup", "b", "c2")], "Done."]


def graph_of(speculation: Any, tools: Any, node: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", speculation.model_node(node))
    builder.add_node("tools", ToolNode(tools, **speculation.wrappers))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
def test_a_right_guess_answers_in_a_graph(events: SpooledEvents, threads: bool) -> None:
    fake_agent.RAN.clear()
    model = ScriptedModel(script=SCRIPT)
    tools = [slow_tool("search"), slow_tool("lookup")]
    guess = [("search", {"query": "a"}), ("lookup", {"query": "wrong"})]
    setup = set_up(events, Script(guess), read_only=["search", "lookup"])
    speculation = GraphSpeculation(tools, setup=setup)
    config: Any = {"configurable": {"thread_id": "1"}}

    def blocking(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def in_loop(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    if threads:
        state = graph_of(speculation, tools, blocking).invoke(asked(), config)
    else:
        state = asyncio.run(graph_of(speculation, tools, in_loop).ainvoke(asked(), config))
    assert tool_results(state) == [
        ("c1", "search found a", "success"), ("c2", "lookup found b", "success")
    ]  # fmt: skip
    assert fake_agent.RAN.count(("search", "a")) == 1
    assert sorted(events.kinds()) == [
        "end success", "hit search", "lookup ok", "miss lookup", "start lookup", "start search"
    ]  # fmt: skip


def test_nodes_that_are_added_together_answer_too(events: SpooledEvents) -> None:
    fake_agent.RAN.clear()
    model = ScriptedModel(script=SCRIPT)
    tools = [slow_tool("search"), slow_tool("lookup")]
    setup = set_up(events, Script([("search", {"query": "a"})]), read_only=["search"])
    builder = StateGraph(MessagesState)

    def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    GraphSpeculation(tools, setup=setup).add_nodes(builder, call_model)
    builder.add_edge(START, "call_model")
    builder.add_conditional_edges("call_model", tools_condition)
    builder.add_edge("tools", "call_model")
    state = builder.compile().invoke(asked())
    assert tool_results(state)[0] == ("c1", "search found a", "success")
    assert "hit search" in events.kinds()


def test_tools_without_the_hooks_are_warned_of(
    events: SpooledEvents, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(script=SCRIPT)
    tools = [slow_tool("search"), slow_tool("lookup")]
    setup = set_up(events, Script([("search", {"query": "a"})]), read_only=["search"])
    speculation = GraphSpeculation(tools, setup=setup)
    builder = StateGraph(MessagesState)
    node = speculation.model_node(lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("model", node)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    builder.compile().invoke(asked())
    (warning,) = [each for each in caplog.messages if "outside of the hooks" in each]
    assert "**speculation.wrappers" in warning


def test_a_run_is_of_the_user_and_thread_of_its_configuration(events: SpooledEvents) -> None:
    model = ScriptedModel(script=SCRIPT)
    tools = [slow_tool("search"), slow_tool("lookup")]
    speculation = GraphSpeculation(tools, setup=set_up(events, Script([])))

    def blocking(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    config: Any = {"configurable": {"thread_id": "t1", "user_id": "u7"}}
    graph_of(speculation, tools, blocking).invoke(asked(), config)
    found = {(each.get("user_id"), each.get("session_id")) for each in events.read()}
    assert found == {("u7", "t1")}


def test_a_misspelt_read_only_tool_is_warned_of(
    events: SpooledEvents, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(script=SCRIPT)
    tools = [slow_tool("search"), slow_tool("lookup")]
    setup = set_up(events, Script([]), read_only=["serach"])

    def blocking(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    speculation = GraphSpeculation(tools, setup=setup)
    graph_of(speculation, tools, blocking).invoke(asked(), {"configurable": {"thread_id": "1"}})
    (warning,) = [each for each in caplog.messages if "read_only" in each]
    assert "did you mean search?" in warning


def test_a_node_that_returns_the_whole_history_has_answered_with_its_last_message() -> None:
    first, last = AIMessage("one"), AIMessage("two")
    assert answer_in({"messages": [first, *asked()["messages"], last]}) is last
