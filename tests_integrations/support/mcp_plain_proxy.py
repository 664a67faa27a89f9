"""A proxy that only passes calls, of the SDK's server and client: ours is compared to it."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.server import Server
from mcp.server.stdio import stdio_server


def plain_proxy(upstream: Client) -> Server[Any]:
    """Return a server that passes listings and calls to another."""

    async def list_tools(ctx: Any, params: Any) -> Any:
        return await upstream.list_tools()

    async def call_tool(ctx: Any, params: Any) -> Any:
        return await upstream.call_tool(params.name, params.arguments)

    return Server("plain", on_list_tools=list_tools, on_call_tool=call_tool)


async def main(command: list[str]) -> None:
    """Serve the client of stdin and stdout."""
    started = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(started) as upstream, stdio_server() as (read, write):
        server = plain_proxy(upstream)
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
