"""What is never started or answered: permissions, hooks of the user, and other tools."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import claude_shop
import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolAnnotations,
)
from claude_shop import (
    ALLOWED,
    LOOKUP,
    REFUND,
    SEARCH,
    ask,
    lookup,
    search,
    shop_options,
    slow_tool,
    speculated,
)
from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool
from played_claude import PlayedClaude, Use
from scripted import Script, SpooledEvents, set_up

from headstart.arguments.checks import InvalidArgument
from headstart.integrations.claude_agent import speculating
from headstart.integrations.claude_agent.permissions import Permissions

GUESS = [(SEARCH, {"query": "a"})]
ONE_CALL = ([search("a", "c1")], "Done.")
FOUND = [("c1", "search found a", False)]


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    claude_shop.RAN.clear()
    yield
    claude_shop.RAN.clear()


def run(options: Any, *script: Any, **more: Any) -> list[tuple[str, str, bool]]:
    """Run an agent; return what its model got of calls."""
    more.setdefault("allowed", ALLOWED)
    played = PlayedClaude(script or ONE_CALL, **more)
    asyncio.run(ask(played, options))
    return played.results


@pytest.mark.parametrize(
    ("answer", "results"),
    [
        (PermissionResultAllow(), FOUND),
        (PermissionResultDeny(message="not today"), [("c1", "not today", True)]),
    ],
    ids=["allowed", "denied"],
)
def test_a_call_that_is_asked_about_is_not_started(
    events: SpooledEvents, answer: Any, results: Any
) -> None:
    asked: list[Any] = []

    async def can_use_tool(tool: str, arguments: Any, context: Any) -> Any:
        assert claude_shop.RAN == [], "nothing runs before the answer"
        asked.append((tool, arguments))
        return answer

    given = shop_options(allowed_tools=[], can_use_tool=can_use_tool)
    assert run(speculated(events, GUESS, options=given), allowed=[]) == results
    assert asked == [(SEARCH, {"query": "a"})]
    assert not any("start" in kind for kind in events.kinds())


def decide(decision: str, **more: Any) -> Any:
    async def hook(hook_input: Any, call_id: Any, context: Any) -> Any:
        output = {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}
        return {"hookSpecificOutput": output}

    return {"PreToolUse": [HookMatcher(hooks=[hook])]}


def test_a_call_that_a_hook_denies_is_not_answered(events: SpooledEvents) -> None:
    options = speculated(events, GUESS, options=shop_options(hooks=decide("deny")))
    assert run(options) == [("c1", "denied by a hook", True)]
    assert events.kinds() == [
        f"start {SEARCH}", f"failed {SEARCH}", f"{SEARCH} error", "end success"
    ]  # fmt: skip


@pytest.mark.parametrize(("guessed", "ran"), [("a", ["a", "b"]), ("b", ["b"])])
def test_a_call_that_a_hook_changes_is_made_as_changed(
    events: SpooledEvents, guessed: str, ran: list[str]
) -> None:
    hooks = decide("allow", updatedInput={"query": "b"})
    guess = [(SEARCH, {"query": guessed})]
    results = run(speculated(events, guess, options=shop_options(hooks=hooks)))
    assert results == [("c1", "search found b", False)]
    assert [query for _, query in claude_shop.RAN] == ran


@pytest.mark.filterwarnings("ignore::claude_agent_sdk.types.CanUseToolShadowedWarning")
def test_a_call_that_a_person_changes_is_made_as_changed(events: SpooledEvents) -> None:
    async def can_use_tool(tool: str, arguments: Any, context: Any) -> Any:
        return PermissionResultAllow(updated_input={"query": "b"})

    given = shop_options(can_use_tool=can_use_tool, hooks=decide("ask"))
    assert run(speculated(events, GUESS, options=given)) == [("c1", "search found b", False)]
    assert claude_shop.RAN == [("search", "a"), ("search", "b")]


@pytest.mark.parametrize(
    ("rules", "disallowed", "mode", "expected"),
    [
        ([SEARCH], [], None, True),
        (["mcp__shop"], [], "dontAsk", True),
        (["mcp__shop__*"], [], "plan", True),
        (["mcp__shop__sea*"], [], None, True),
        (["mcp__shop__look*"], [], None, False),
        (["mcp__*"], [], None, False),
        (["*"], [], None, False),
        (["mcp__shopping"], [], None, False),
        ([], [], "acceptEdits", False),
        ([], [], "bypassPermissions", True),
        ([SEARCH], ["mcp__shop"], "bypassPermissions", False),
        ([SEARCH], ["mcp__*"], None, False),
        ([SEARCH], [f"{SEARCH}(a)"], None, False),
    ],
)
def test_rules(rules: Any, disallowed: Any, mode: Any, expected: bool) -> None:
    """As Claude Code 2.1.332 applies them; where that is not known, the tool is not started."""
    assert Permissions(rules, disallowed, None).allow(SEARCH, mode) is expected
    assert Permissions(rules, disallowed, mode).allow(SEARCH) is expected


@pytest.mark.parametrize(
    ("annotations", "named", "kind"),
    [
        (None, [], "guess"),
        (None, [SEARCH], "start"),
        (ToolAnnotations(readOnlyHint=False), [], "guess"),
        (ToolAnnotations(readOnlyHint=True), [], "start"),
        (ToolAnnotations(destructiveHint=True), [SEARCH], "guess"),
    ],
)
def test_only_read_only_tools_are_started(
    events: SpooledEvents, annotations: Any, named: Any, kind: str
) -> None:
    given = shop_options(slow_tool("search", annotations=annotations))
    setup = set_up(events, Script(GUESS), read_only=named)
    assert run(speculating(given, setup=setup)) == FOUND
    assert events.kinds()[0] == f"{kind} {SEARCH}"
    assert len(claude_shop.RAN) == 1


def test_other_tools_are_observed(events: SpooledEvents) -> None:
    """Those of Claude Code, and of servers outside, also where they are named as read-only."""
    turn = [Use("Read", {"file": "a"}, "c1"), Use("mcp__out__find", {"query": "a"}, "c2")]
    given = shop_options(allowed_tools=["Read", "mcp__out"], permission_mode="bypassPermissions")
    assert isinstance(given.mcp_servers, dict)
    given.mcp_servers["out"] = {"command": "out"}
    setup = set_up(events, Script([("Read", {}), ("mcp__out__find", {})]), read_only=["Read"])
    run(speculating(given, setup=setup), turn, "Done.", mode="bypassPermissions")
    assert sorted(events.kinds()) == ["Read ok", "end success", "mcp__out__find error"]


def test_a_server_of_another_kind_is_observed(events: SpooledEvents) -> None:
    async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
        hints = ToolAnnotations(readOnlyHint=True)
        schema = {"type": "object"}
        return ListToolsResult(tools=[Tool(name="search", input_schema=schema, annotations=hints)])

    async def on_call_tool(context: Any, params: Any) -> CallToolResult:
        claude_shop.RAN.append((params.name, params.arguments["query"]))
        assert context.session is not None
        return CallToolResult(content=[TextContent(type="text", text="search found a")])

    server = Server("shop", on_list_tools=on_list_tools, on_call_tool=on_call_tool)
    given = ClaudeAgentOptions(
        mcp_servers={"shop": {"type": "sdk", "name": "shop", "instance": server}},
        allowed_tools=ALLOWED,
    )
    assert run(speculated(events, GUESS, options=given)) == FOUND
    assert events.kinds() == [f"{SEARCH} ok", "end success"]


def test_a_call_whose_id_is_unknown_is_made(events: SpooledEvents) -> None:
    assert run(speculated(events, GUESS), call_ids=False) == FOUND
    assert claude_shop.RAN == [("search", "a")] * 2


def test_the_options_are_not_changed(events: SpooledEvents) -> None:
    """The caller's hooks come first, in their order."""
    called: list[str] = []

    def noting(name: str) -> HookMatcher:
        async def hook(hook_input: Any, call_id: Any, context: Any) -> Any:
            called.append(name)
            return {}

        return HookMatcher(hooks=[hook])

    given = shop_options(hooks={"PreToolUse": [noting("first"), noting("second")]})
    hooks, server = dict(given.hooks or {}), given.mcp_servers["shop"]["instance"]  # type: ignore[index,typeddict-item]
    ours = speculated(events, GUESS, options=given)
    assert run(ours) == FOUND
    assert called == ["first", "second"]
    assert given.hooks == hooks
    assert ours.hooks is not None
    assert ours.hooks["PreToolUse"][:2] == hooks["PreToolUse"]
    assert given.mcp_servers["shop"]["instance"] is server  # type: ignore[index,typeddict-item]
    claude_shop.RAN.clear()
    assert run(given) == FOUND
    assert len(events.read()) == 3, "nothing more is logged"


@pytest.mark.parametrize(
    ("definition", "started"),
    [
        ({}, True),
        ({"tools": ["mcp__shop"]}, True),
        ({"tools": [LOOKUP]}, False),
        ({"disallowedTools": [SEARCH]}, False),
        ({"permissionMode": "default"}, False),
    ],
)
def test_what_a_subagent_may_call(events: SpooledEvents, definition: Any, started: bool) -> None:
    agents = {"finder": AgentDefinition("finds", "Find.", **definition)}
    given = shop_options(allowed_tools=[], permission_mode="bypassPermissions", agents=agents)
    asked = Use("Agent", {"subagent_type": "finder", "prompt": "Find."}, "c1", ["Found."])
    run(speculated(events, GUESS, options=given), [asked], "Done.", mode="bypassPermissions")
    kinds = [each["event_type"] for each in events.read() if each.get("agent_id") == "finder"]
    assert kinds[-1] == "workflow_complete"
    assert ("speculation_start" in kinds) is started


def test_sessions_at_once(events: SpooledEvents) -> None:
    options = speculated(events, GUESS)

    async def both() -> None:
        played = [
            PlayedClaude([[search("a", f"c{n}")], "Done."], allowed=ALLOWED, session=f"s{n}")
            for n in range(5)
        ]
        await asyncio.gather(*(ask(each, options) for each in played))
        assert [each.results for each in played] == [
            [(f"c{n}", "search found a", False)] for n in range(5)
        ]

    asyncio.run(both())
    assert events.kinds().count(f"hit {SEARCH}") == 5
    assert events.kinds().count("end success") == 5
    assert len(claude_shop.RAN) == 5


def test_a_hook_that_cannot_be_observed_changes_nothing(
    events: SpooledEvents, caplog: pytest.LogCaptureFixture
) -> None:
    setup = set_up(events, Script(GUESS), context={"workflow_id": "\u0000"})
    assert run(speculating(shop_options(), setup=setup)) == FOUND
    assert "was not observed" in caplog.text


@pytest.mark.parametrize(
    ("before", "ran"),
    [
        (Use(REFUND, {"query": "x"}, "c0"), ["a", "x", "a"]),
        (Use("Bash", {"command": "x"}, "c0"), ["a", "a"]),
        (Use("Read", {"file": "x"}, "c0"), ["a"]),
        (lookup("x", "c0"), ["a", "x"]),
    ],
)
def test_a_call_behind_one_that_may_change_something_is_made(
    events: SpooledEvents, before: Use, ran: list[str]
) -> None:
    """What the guessed call returned is from before the change."""
    tools = slow_tool("search"), slow_tool("lookup"), slow_tool("refund", annotations=None)
    options = speculated(events, GUESS, options=shop_options(*tools))
    allowed, serial = [*ALLOWED, "Bash", "Read"], [REFUND, "Bash", SEARCH]
    results = run(options, [before, search("a", "c1")], "Done.", allowed=allowed, serial=serial)
    assert ("c1", "search found a", False) in results
    assert [query for _, query in claude_shop.RAN] == ran


def test_a_missing_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "headstart.integrations.claude_agent"
    for module in [each for each in sys.modules if each.startswith(name)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(ImportError, match=r"pip install 'headstart\[claude-agent\]'"):
        importlib.import_module(name)


def test_wrong_arguments() -> None:
    with pytest.raises(InvalidArgument, match="workflow_type is missing"):
        speculating(ClaudeAgentOptions())


def test_two_answers_in_the_order_of_the_model(events: SpooledEvents) -> None:
    received: list[Any] = []
    options = speculated(events, received=received)
    run(options, [lookup("b", "c1"), search("a", "c2")], "Done.")
    assert (LOOKUP, "lookup found b", False) in received
