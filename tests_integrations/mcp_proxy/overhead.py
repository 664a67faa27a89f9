"""Prints what a proxy adds to a call of a tool, in µs: calls through each in turns, in one loop.

The client, each proxy and the server are joined in memory, so that only their own work counts. From
the root: `PYTHONPATH=tests_integrations/support .venvs/mcp/bin/python
tests_integrations/mcp_proxy/overhead.py`; with `processes` also over stdio, as clients start them.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import MCPServer
from mcp_in_process import bridged, client_of, served
from mcp_plain_proxy import plain_proxy
from mcp_programs import HERE, SERVER, Notes, environment, proxied
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.stream_proxy import StreamProxy

CALLS, THINKS_S = 400, 0.03
"""Calls of each; the time between two, in which a turn ends and a guess is made."""
WRONG = [[("lookup", {"query": "wrong"})]] * (CALLS + 20)
BASE, UNSEEN = "the SDK's proxy", "ours, calls not observed"
server = MCPServer("upstream")


@server.tool()
async def search(query: str) -> str:
    return f"found {query}"


@server.tool()
async def lookup(query: str) -> str:
    return f"found {query}"


def proxy_of(folder: Path, *guesses: Any) -> StreamProxy:
    setup = set_up(SpooledEvents(folder), Script(*guesses), read_only=["search", "lookup"])
    return StreamProxy(setup, KnownTools())


class Unseen(StreamProxy):
    """Passes messages without looking at calls."""

    async def _request(self, message: Any) -> None:
        await self._forward(message, None)


def unseen(folder: Path) -> StreamProxy:
    return Unseen(set_up(SpooledEvents(folder), Script()), KnownTools())


async def in_process(folder: Path, mode: str, stack: AsyncExitStack) -> dict[str, Client]:
    low = server._lowlevel_server
    plain = await stack.enter_async_context(client_of(served(low), mode))
    transports = {
        "no proxy": served(low),
        BASE: served(plain_proxy(plain)),
        UNSEEN: bridged(unseen(folder / "unseen"), low),
        "ours, no guess": bridged(proxy_of(folder / "none"), low),
        "ours, wrong guesses": bridged(proxy_of(folder / "wrong", *WRONG), low),
    }
    return {
        name: await stack.enter_async_context(client_of(each, mode))
        for name, each in transports.items()
    }


async def in_processes(folder: Path, mode: str, stack: AsyncExitStack) -> dict[str, Client]:
    notes = Notes(folder)
    env = environment(notes)
    command, *args = SERVER
    plain = [str(HERE / "mcp_plain_proxy.py"), *SERVER]
    programs = {
        "no proxy": StdioServerParameters(command=command, args=args, env=env),
        BASE: StdioServerParameters(command=sys.executable, args=plain, env=env),
        "ours, no guess": proxied(folder / "none", notes, []),
        "ours, wrong guesses": proxied(folder / "wrong", notes, WRONG),
    }
    return {
        name: await stack.enter_async_context(Client(each, mode=mode))
        for name, each in programs.items()
    }


async def took_us(client: Client) -> tuple[float, float]:
    """Return the time that passed, and that of the processor in this thread."""
    begun, worked = time.perf_counter(), time.thread_time()
    await client.call_tool("search", {"query": "a"})
    return (time.perf_counter() - begun) * 1e6, (time.thread_time() - worked) * 1e6


async def measure(connect: Any, mode: str) -> None:
    """Measure in one protocol."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            clients = await connect(Path(folder), mode, stack)
            for client in clients.values():
                await client.list_tools()
            took: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
            order, draw = list(clients), random.Random(7)
            for number in range(CALLS + 20):
                draw.shuffle(order)  # the first one after the pause takes longer
                for name in order:
                    each = await took_us(clients[name])
                    if number >= 20:  # the first rounds warm up
                        took[name].append(each)
                await asyncio.sleep(THINKS_S)
    print("- time that passed")
    report({name: [passed for passed, _ in each] for name, each in took.items()})
    if connect is in_process:
        print("- time of the processor, in the thread of the loop")
        report({name: [worked for _, worked in each] for name, each in took.items()})


def report(took: dict[str, list[float]]) -> None:
    """Print the medians, and the medians of the differences of calls in one round."""
    for name, each in took.items():
        print(f"{name}: p50 {median(each):.0f} µs, p95 {quantiles(each, n=20)[-1]:.0f} µs")
    for name, each in took.items():
        for less in ("no proxy", BASE, UNSEEN):
            if less in took and less != name and name not in ("no proxy", UNSEEN):
                apart = median(a - b for a, b in zip(each, took[less], strict=True))
                print(f"{name}, beyond {less}: p50 {apart:+.0f} µs")


if __name__ == "__main__":
    ways = [in_process, *([in_processes] if "processes" in sys.argv else [])]
    for way in ways:
        for era in ("auto", "legacy"):
            print(f"== {way.__name__}, {era}")
            asyncio.run(measure(way, era))
