"""A server whose tools note their calls, and a client of it behind the proxy, in one loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp_in_process import bridged, client_of
from mcp_types import ToolAnnotations
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes
from headstart.integrations.mcp_proxy.stream_proxy import StreamProxy

READ_ONLY = ToolAnnotations(read_only_hint=True)
SEARCH = [("search", {"query": "a"})]
TIMES = ProxyTimes(gap=0.02)
THINKS_S = 0.05
"""Long enough for a guess to end."""


class Tools:
    """A server; `ran` has its calls."""

    def __init__(self) -> None:
        self.server = MCPServer("upstream")
        self.ran: list[tuple[str, str]] = []
        self.cancelled: list[tuple[str, str]] = []

    def add(
        self, name: str, takes_s: float = 0.02, annotations: Any = None, error: bool = False
    ) -> None:
        async def made(query: str) -> str:
            self.ran.append((name, query))
            try:
                await asyncio.sleep(takes_s)
            except asyncio.CancelledError:
                self.cancelled.append((name, query))
                raise
            if error:
                raise ValueError("this tool fails")
            return f"{name} found {query}"

        self.server.add_tool(made, name=name, annotations=annotations)


class Bench:
    """A client behind the proxy."""

    def __init__(self, client: Client, tools: Tools, proxy: StreamProxy, setup: Any) -> None:
        self.client, self.tools, self.proxy, self.setup = client, tools, proxy, setup

    async def call(self, name: str, query: str = "a", **more: Any) -> str:
        result = await self.client.call_tool(name, {"query": query}, **more)
        text = result.content[0].text
        return f"error: {text}" if result.is_error else text

    async def think(self) -> None:
        """Wait until the turn has ended, and guesses are made."""
        session = self.proxy.session
        async with asyncio.timeout(30):
            while session.busy or session._in_turn:  # noqa: ASYNC110 - there is no event of it
                await asyncio.sleep(0.005)
        if session._run is not None:
            await session._run.guessed()
        await asyncio.sleep(THINKS_S)

    def lengthen_turn(self) -> None:
        """Let all calls from now on be of one turn, on a slow machine too."""
        self.proxy.session._times = ProxyTimes(gap=30.0)


@asynccontextmanager
async def bench(
    events: SpooledEvents,
    *guesses: Any,
    tools: Tools | None = None,
    mode: str = "legacy",
    trust: bool = False,
    received: Any = None,
    times: ProxyTimes = TIMES,
    client: Any = None,
    **setup: Any,
) -> AsyncIterator[Bench]:
    if tools is None:
        tools = Tools()
        for name in ("search", "lookup"):
            tools.add(name, annotations=READ_ONLY)
        tools.add("refund")
    setup.setdefault("read_only", ["search", "lookup"])
    made = set_up(events, Script(*guesses, received=received), **setup)
    proxy = StreamProxy(made, KnownTools(trust_annotations=trust), times)
    server = tools.server._lowlevel_server
    async with client_of(bridged(proxy, server), mode, **(client or {})) as connected:
        await connected.list_tools()
        yield Bench(connected, tools, proxy, made)
    await made.close()
    assert made.speculator.stats()["open"] == 0
    assert made.speculator.stats()["unlogged"] == 0
