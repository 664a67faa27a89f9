"""What is never guessed, what decides about calls, and agents after a handoff."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sdk_agent
from agents.mcp import MCPServer
from agents.testing import ModelStep, ScriptedModel, function_call
from agents.tracing import TracingProcessor, add_trace_processor, set_trace_processors
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from scripted import Script, SpooledEvents, set_up
from sdk_agent import NO_TRACES, call, scripted, slow_tool, support_agent, tool_results

from agents import (
    Agent,
    FunctionTool,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
    custom_span,
    function_tool,
    handoff,
    trace,
)
from headstart.integrations.openai_agents import SpeculationRunner

GUESS = [("search", {"query": "order 7"})]
ONE_CALL = ([call("search", "order 7", "c1")], "It is on its way.")
NOT_STARTED = ["search ok", "end success"]


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    sdk_agent.RAN.clear()
    yield
    sdk_agent.RAN.clear()


def speculating(
    events: SpooledEvents, *guesses: Any, read_only: tuple[str, ...] = ("search", "lookup")
) -> SpeculationRunner:
    return SpeculationRunner(setup=set_up(events, Script(*guesses), read_only=read_only))


def run(runner: Any, agent: Any, given: Any = "Where is order 7?") -> Any:
    return asyncio.run(runner.run(agent, given, run_config=NO_TRACES))


async def approve_all(context: Any, arguments: Any, call_id: str) -> bool:
    return True


@pytest.mark.parametrize("approval", [True, approve_all], ids=["always", "asked"])
@pytest.mark.parametrize("approved", [True, False])
def test_a_tool_that_a_person_approves_is_never_started(
    events: SpooledEvents, approval: Any, approved: bool
) -> None:
    runner = speculating(events, GUESS)
    agent = support_agent(scripted(*ONE_CALL), slow_tool("search", needs_approval=approval))
    result = run(runner, agent)
    assert sdk_agent.RAN == [], "nothing before the decision"
    state = result.to_state()
    decide = state.approve if approved else state.reject
    decide(result.interruptions[0])
    result = run(runner, agent, state)
    assert result.final_output == "It is on its way."
    assert ([("search", "order 7")] if approved else []) == sdk_agent.RAN
    assert events.kinds() == ["end aborted", "end success"]


def test_a_tool_whose_approval_is_switched_on_meanwhile_is_not_called(
    events: SpooledEvents,
) -> None:
    tool = slow_tool("search")

    async def answer() -> Any:
        await asyncio.sleep(0.05)
        tool.needs_approval = True
        return ONE_CALL[0]

    model = ScriptedModel([ModelStep.respond(lambda _: answer())])
    result = run(speculating(events), support_agent(model, tool))
    assert result.interruptions
    assert sdk_agent.RAN == []


def test_input_guardrails_of_a_tool_come_before_its_calls(events: SpooledEvents) -> None:
    def refuse(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("refused")

    tool = slow_tool("search", tool_input_guardrails=[ToolInputGuardrail(refuse)])
    result = run(speculating(events, GUESS), support_agent(scripted(*ONE_CALL), tool))
    assert tool_results(result) == [("c1", "refused")]
    assert sdk_agent.RAN == []
    assert events.kinds() == ["end success"]


def test_output_guardrails_of_a_tool_see_answers(events: SpooledEvents) -> None:
    seen: list[object] = []

    def redact(data: Any) -> ToolGuardrailFunctionOutput:
        seen.append(data.output)
        return ToolGuardrailFunctionOutput.reject_content("[redacted]")

    tool = slow_tool("search", tool_output_guardrails=[ToolOutputGuardrail(redact)])
    result = run(speculating(events, GUESS), support_agent(scripted(*ONE_CALL), tool))
    assert tool_results(result) == [("c1", "[redacted]")]
    assert seen == ["search found order 7"]
    assert "hit search" in events.kinds()


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("parallel", [True, False])
def test_input_guardrails_of_an_agent_come_before_guesses(
    events: SpooledEvents, refuses: bool, parallel: bool
) -> None:
    async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asyncio.sleep(0.02)
        return GuardrailFunctionOutput(None, tripwire_triggered=refuses)

    guard = InputGuardrail(check, run_in_parallel=parallel)
    agent = support_agent(scripted(*ONE_CALL), slow_tool("search"), input_guardrails=[guard])
    runner = speculating(events, GUESS)
    if refuses:
        with pytest.raises(InputGuardrailTripwireTriggered):
            run(runner, agent)
        assert sdk_agent.RAN == []
        assert events.kinds() == ["end failure"]
    else:
        run(runner, agent)
        assert (events.kinds()[0] == "start search") is not parallel
    assert runner.setup.speculator.stats()["open"] == 0


async def narrow(context: RunContextWrapper[Any], arguments: str) -> str:
    return "found"


NARROW = FunctionTool("search", "Search.", slow_tool("search").params_json_schema, narrow)


@pytest.mark.parametrize(
    "tool",
    [
        NARROW,
        slow_tool("search", is_enabled=lambda context, agent: True),
        slow_tool("search", allowed_callers=["direct"]),
    ],
    ids=["narrow context", "enabled by a function", "callers"],
)
def test_a_tool_that_something_else_decides_about_is_not_guessed(
    events: SpooledEvents, tool: Any
) -> None:
    run(speculating(events, GUESS), support_agent(scripted(*ONE_CALL), tool))
    assert events.kinds() == NOT_STARTED


def test_an_agent_as_a_tool_is_not_guessed(events: SpooledEvents) -> None:
    inner = support_agent(scripted("Found."))
    tool = inner.as_tool("search", "Search.")
    model = scripted([function_call("search", {"input": "a"}, call_id="c1")], "Done.")
    result = run(speculating(events, [("search", {"input": "a"})]), support_agent(model, tool))
    assert tool_results(result) == [("c1", "Found.")]
    assert events.kinds() == NOT_STARTED


class Server(MCPServer):
    """An MCP server in this process."""

    def __init__(self, *tools: Tool, error: bool = False) -> None:
        super().__init__()
        self.tools, self.error, self.called = tools, error, list[str]()

    name = "shop"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Tool]:
        return list(self.tools)

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        self.called.append(tool_name)
        await asyncio.sleep(0.03)
        text = TextContent(type="text", text="found")
        return CallToolResult(content=[text], is_error=self.error)

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


@pytest.mark.parametrize(
    ("annotations", "started"),
    [
        (ToolAnnotations(read_only_hint=True), True),
        (ToolAnnotations(read_only_hint=True, destructive_hint=True), False),
        (ToolAnnotations(idempotent_hint=True), False),
        (None, False),
    ],
    ids=["read-only", "destructive", "idempotent", "none"],
)
def test_annotations_of_mcp_tools_decide(
    events: SpooledEvents, annotations: Any, started: bool
) -> None:
    server = Server(Tool(name="search", input_schema=SCHEMA, annotations=annotations))
    agent = support_agent(scripted(*ONE_CALL), mcp_servers=[server])
    result = run(speculating(events, GUESS, read_only=()), agent)
    assert "found" in str(tool_results(result))
    assert server.called == ["search"]
    kind = "start search" if started else "guess search"
    assert events.kinds() == [kind, "hit search", "end success"]


def test_an_error_of_an_mcp_tool_is_no_hit(events: SpooledEvents) -> None:
    server = Server(Tool(name="search", input_schema=SCHEMA), error=True)
    run(speculating(events, GUESS), support_agent(scripted(*ONE_CALL), mcp_servers=[server]))
    assert server.called == ["search", "search"]
    assert events.kinds() == ["start search", "failed search", "search error", "end success"]


def test_agents_after_a_handoff_have_tools_of_their_own(events: SpooledEvents) -> None:
    billing = Agent(
        name="billing", model=scripted([call("lookup", "b", "c3")], "Done."),
        tools=[slow_tool("lookup")],
    )  # fmt: skip
    to_billing = [function_call("transfer_to_billing", {}, call_id="c2")]
    for target in (billing, handoff(billing)):
        sdk_agent.RAN.clear()
        billing.model = scripted([call("lookup", "b", "c3")], "Done.")
        guesses = [("search", {"query": "order 7"}), ("lookup", {"query": "b"})]
        model = scripted(ONE_CALL[0], to_billing)
        triage = support_agent(model, slow_tool("search"), handoffs=[target])
        billing.handoffs = [triage]
        result = run(speculating(events, guesses, guesses, guesses), triage)
        assert result.final_output == "Done."
        assert result.last_agent.name == "billing"
        assert sdk_agent.RAN.count(("lookup", "b")) == 1
        assert triage.handoffs == [target]
    of_a_run = [
        "start search", "hit search", "start search", "miss search", "start lookup", "hit lookup",
        "end success",
    ]  # fmt: skip
    assert events.kinds() == of_a_run * 2


class Own(Agent[Any]):
    def __init__(self, model: Any) -> None:
        super().__init__(name="own", model=model, tools=[slow_tool("search")])


def test_an_agent_that_cannot_be_copied_runs_without_guesses(events: SpooledEvents) -> None:
    agent = Own(scripted(*ONE_CALL))
    result = run(speculating(events, GUESS), agent)
    assert result.last_agent is agent
    assert events.kinds() == NOT_STARTED
    to_own = [function_call("transfer_to_own", {}, call_id="c0")]
    agent.model = scripted(*ONE_CALL)
    first = support_agent(scripted(to_own), slow_tool("search"), handoffs=[handoff(agent)])
    assert run(speculating(events, [], GUESS), first).last_agent is agent
    assert events.kinds() == NOT_STARTED * 2


class Spans(TracingProcessor):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_trace_start(self, trace: Any) -> None: ...

    def on_trace_end(self, trace: Any) -> None: ...

    def on_span_start(self, span: Any) -> None:
        self.names.append(getattr(span.span_data, "name", None) or span.span_data.type)

    def on_span_end(self, span: Any) -> None: ...

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


def test_a_wrong_guess_is_not_traced(events: SpooledEvents) -> None:
    @function_tool(name_override="search")
    async def traced(query: str) -> str:
        """Search."""
        with custom_span(f"index of {query}"):
            return "found"

    spans = Spans()
    set_trace_processors([])
    add_trace_processor(spans)
    agent = support_agent(scripted(*ONE_CALL), traced)

    async def both() -> None:
        with trace("test"):
            await speculating(events, [("search", {"query": "order 8"})]).run(agent, "Where?")

    asyncio.run(both())
    assert "start search" in events.kinds()
    assert [name for name in spans.names if name.startswith("index")] == ["index of order 7"]


def test_a_missing_framework_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    from headstart.integrations.openai_agents import framework

    monkeypatch.setitem(sys.modules, "agents", None)
    with pytest.raises(ImportError, match=r"pip install 'headstart\[openai-agents\]'"):
        framework._imported()
    monkeypatch.setitem(sys.modules, "agents", ModuleType("agents"))
    with pytest.raises(ImportError, match="is not openai-agents"):
        framework._imported()
