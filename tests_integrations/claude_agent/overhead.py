"""Prints what the integration adds to a call without a guess, in µs, and to a session, in ms.

From the root: `PYTHONPATH=tests_integrations/support .venvs/claude-agent/bin/python
tests_integrations/claude_agent/overhead.py`
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
from claude_shop import ALLOWED, SEARCH, ask, lookup, search, shop_options, slow_tool
from mcp.server import Server
from mcp.types import CallToolResult, TextContent
from played_claude import PlayedClaude
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.claude_agent import speculating

CALLS, RUNS = 2_000, 60
BATCHES: list[float] = []
"""µs of each end of a turn."""
EVENTS = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolBatch", "Stop")


def server_of(options: Any) -> Any:
    return options.mcp_servers["shop"]["instance"]


async def call(options: Any, number: int) -> float:
    """Make a turn of one call as Claude Code has it made, with the hooks; return the seconds."""
    base = {"session_id": "s", "prompt_id": "p", "permission_mode": "default"}
    hook_input = {"tool_name": SEARCH, "tool_input": {"query": "a"}, "tool_use_id": f"c{number}"}
    entry = server_of(options).get_request_handler("tools/call")
    params = entry.params_type.model_validate(
        {"name": "search", "arguments": {"query": "a"},
         "_meta": {"claudecode/toolUseId": f"c{number}"}}
    )  # fmt: skip
    response = [{"type": "text", "text": "search found a"}]

    async def hook(event: str, more: Any) -> None:
        for matcher in (options.hooks or {}).get(event, ()):
            for each in matcher.hooks:
                await each({**base, "hook_event_name": event, **more}, None, {"signal": None})

    begun = time.perf_counter()
    await hook("PreToolUse", hook_input)
    await entry.handler(None, params)
    await hook("PostToolUse", {**hook_input, "tool_response": response, "duration_ms": 1})
    took = time.perf_counter() - begun
    batch = {**hook_input, "tool_response": response}
    begun = time.perf_counter()
    await hook("PostToolBatch", {"tool_calls": [batch]})
    BATCHES.append((time.perf_counter() - begun) * 1e6)
    return took


def quick_server() -> Any:
    """Return a server that validates nothing, so that its own time does not matter."""
    result = CallToolResult(content=[TextContent(type="text", text="search found a")])

    async def on_call_tool(context: Any, params: Any) -> CallToolResult:
        return result

    return {"type": "sdk", "name": "shop", "instance": Server("shop", on_call_tool=on_call_tool)}


async def calls(events: SpooledEvents) -> None:
    plain = ClaudeAgentOptions(mcp_servers={"shop": quick_server()}, allowed_tools=ALLOWED)
    ours = speculating(plain, setup=set_up(events, Script()))
    took = []
    for number in range(CALLS):
        without = await call(plain, number)
        BATCHES.pop()
        took.append((await call(ours, number) - without) * 1e6)
        await asyncio.sleep(0)  # the guess begins
    print(f"a call: p50 {median(took):.0f} µs, p95 {quantiles(took, n=20)[-1]:.0f} µs")
    print(
        f"the end of a turn: p50 {median(BATCHES):.0f} µs, p95 {quantiles(BATCHES, n=20)[-1]:.0f}"
    )


async def empty(hook_input: Any, call_id: Any, context: Any) -> Any:
    """Decide nothing."""
    return {}


async def runs(events: SpooledEvents) -> None:
    plain = shop_options(slow_tool("search", 0.0), slow_tool("lookup", 0.0))
    wrong = Script([(SEARCH, {"query": "wrong"})])
    hooks: Any = {event: [HookMatcher(hooks=[empty])] for event in EVENTS}
    agents = {
        "the plain SDK": plain,
        "empty hooks": replace(plain, hooks=hooks),
        "no guess": speculating(plain, setup=set_up(events, Script())),
        "a wrong guess": speculating(plain, setup=set_up(events, wrong)),
    }
    took: dict[str, list[float]] = {name: [] for name in agents}
    cpu: dict[str, list[float]] = {name: [] for name in agents}
    turn = [search("a", "c1"), lookup("b", "c2")]
    for number in range(RUNS):
        for name, options in agents.items():
            played = PlayedClaude([turn, "Done."], allowed=ALLOWED, session=f"s{number}")
            begun, used = time.perf_counter(), time.process_time()
            await ask(played, options)
            cpu[name].append((time.process_time() - used) * 1e3)
            took[name].append((time.perf_counter() - begun) * 1e3)
    for name, each in took.items():
        both = f"{median(each):.1f} ms, of these {median(cpu[name]):.1f} ms on the CPU"
        print(f"a session of two calls with {name}: p50 {both}")


def main() -> None:
    """Measure, with an emitter to a spool on disk."""
    with tempfile.TemporaryDirectory() as folder:
        events = SpooledEvents(Path(folder))
        asyncio.run(calls(events))
        asyncio.run(runs(events))


if __name__ == "__main__":
    main()
