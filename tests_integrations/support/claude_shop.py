"""An agent of the Claude Agent SDK with the tools of a shop, which are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    ToolAnnotations,
    create_sdk_mcp_server,
    query,
    tool,
)
from played_claude import PlayedClaude, Use
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.claude_agent import speculating

RAN: list[tuple[str, str]] = []
"""The calls of tools, in the order of their begin."""
SEARCH, LOOKUP, REFUND = "mcp__shop__search", "mcp__shop__lookup", "mcp__shop__refund"
ALLOWED = [SEARCH, LOOKUP, REFUND]
READ_ONLY = ToolAnnotations(readOnlyHint=True)


def search(query: str, call_id: str) -> Use:
    return Use(SEARCH, {"query": query}, call_id)


def lookup(query: str, call_id: str) -> Use:
    return Use(LOOKUP, {"query": query}, call_id)


def slow_tool(
    name: str,
    takes_s: float = 0.03,
    error: Exception | None = None,
    annotations: Any = READ_ONLY,
) -> Any:
    """Return a tool. `error`: what it raises at the end."""

    @tool(name, f"{name}.", {"query": str}, annotations=annotations)
    async def made(args: Any) -> Any:
        RAN.append((name, args["query"]))
        await asyncio.sleep(takes_s)
        if error is not None:
            raise error
        return {"content": [{"type": "text", "text": f"{name} found {args['query']}"}]}

    return made


def shop_options(*tools: Any, **more: Any) -> ClaudeAgentOptions:
    given = tools or (slow_tool("search"), slow_tool("lookup"))
    server = create_sdk_mcp_server("shop", tools=list(given))
    more.setdefault("allowed_tools", ALLOWED)
    return ClaudeAgentOptions(mcp_servers={"shop": server}, **more)


def speculated(
    events: SpooledEvents, *guesses: Sequence[Any], options: Any = None, received: Any = None
) -> ClaudeAgentOptions:
    setup = set_up(events, Script(*guesses, received=received))
    return speculating(shop_options() if options is None else options, setup=setup)


async def ask(played: PlayedClaude, options: Any, text: str = "Where is order 7?") -> list[Any]:
    """Run one prompt by `query`; return its messages."""
    async with aclosing(query(prompt=text, options=options, transport=played)) as messages:  # type: ignore[type-var]
        return [each async for each in messages]


async def ask_client(client: ClaudeSDKClient, text: str = "Where is order 7?") -> ResultMessage:
    """Run one prompt by a client; return the last message."""
    await client.query(text)
    messages = [each async for each in client.receive_response()]
    return messages[-1]  # type: ignore[return-value]
