"""An MCP server of the SDK whose tools note their calls; over stdio, or HTTP at a given port.

The notes go to the file MCP_NOTES, one JSON list a line: what happened, the tool, its query.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("upstream", instructions="For tests.")
READ_ONLY = ToolAnnotations(read_only_hint=True)


def note(*what: str) -> None:
    with open(os.environ["MCP_NOTES"], "a", encoding="utf-8") as notes:
        notes.write(json.dumps(what) + "\n")


async def work(tool: str, query: str, takes_s: float) -> str:
    note("begun", tool, query)
    try:
        await asyncio.sleep(takes_s)
    except asyncio.CancelledError:
        note("cancelled", tool, query)
        raise
    note("ended", tool, query)
    return f"{tool} found {query}"


@server.tool(annotations=READ_ONLY)
async def search(query: str, takes_s: float = 0.03) -> str:
    return await work("search", query, takes_s)


@server.tool()
async def lookup(query: str, takes_s: float = 0.03) -> str:
    return await work("lookup", query, takes_s)


@server.tool()
async def refund(query: str) -> str:
    return await work("refund", query, 0.01)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=True))
async def erase(query: str) -> str:
    return await work("erase", query, 0.01)


@server.tool(annotations=READ_ONLY)
async def fail(query: str) -> str:
    await work("fail", query, 0.01)
    raise ValueError("this tool fails")


@server.tool(annotations=READ_ONLY)
async def big(query: str) -> str:
    return "x" * int(query)


@server.tool()
async def leave(query: str) -> str:
    os._exit(3)


@server.tool()
async def babble(query: str) -> str:
    os.write(int(os.environ.get("MCP_WIRE", "1")), b"this is no JSON\n")
    return "done"


class Answer(BaseModel):
    sure: bool


@server.tool(annotations=READ_ONLY)
async def ask(query: str, ctx: Context) -> str:
    note("begun", "ask", query)
    answer = await ctx.elicit("Are you sure?", Answer)
    return f"{answer.action} {query}"


@server.tool()
async def step(query: str, ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half")
    await ctx.info("half way")
    return "done"


@server.tool()
async def change(query: str, ctx: Context) -> str:
    server.add_tool(later, name="later", annotations=READ_ONLY)
    await ctx.session.send_tool_list_changed()
    return "changed"


async def later(query: str) -> str:
    return await work("later", query, 0.01)


@server.resource("notes://{name}")
async def notes(name: str) -> str:
    return f"note {name}"


@server.prompt()
async def greet(name: str) -> str:
    return f"Hello {name}"


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Any:
    from mcp_types import Completion

    return Completion(values=["Anna", "Anton"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
