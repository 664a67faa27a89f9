"""Calls that the server does not answer: guesses go on without them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp_bench import READ_ONLY, SEARCH, Bench, Tools, bench
from scripted import SpooledEvents

from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes

TIMES = ProxyTimes(gap=0.02, unanswered=0.2)


class HangingTool:
    """A tool that answers when it is `released`."""

    def __init__(self, name: str, annotations: Any = None) -> None:
        self.name = name
        self.begun, self.released = asyncio.Event(), asyncio.Event()
        self.tools = Tools()
        self.tools.add("search", annotations=READ_ONLY)
        self.tools.add("lookup", annotations=READ_ONLY)
        self.tools.server.add_tool(self.made, name=name, annotations=annotations)

    async def made(self, query: str) -> str:
        self.begun.set()
        await self.released.wait()
        return f"{self.name} found {query}"


@asynccontextmanager
async def hanging(
    events: SpooledEvents, tool: HangingTool, *guesses: Any, **options: Any
) -> AsyncIterator[tuple[Bench, asyncio.Task[str]]]:
    """Give a client one of whose calls hangs, and the task that waits for its answer."""
    async with bench(events, *guesses, tools=tool.tools, times=TIMES, **options) as b:
        waiting = asyncio.ensure_future(b.call(tool.name, "x"))
        await tool.begun.wait()
        try:
            yield b, waiting
        finally:
            waiting.cancel()
            await asyncio.wait([waiting])


@pytest.mark.parametrize("name", ["read", "write"])
def test_a_call_without_an_answer_does_not_stop_guesses(events: SpooledEvents, name: str) -> None:
    async def test() -> None:
        tool = HangingTool(name)
        options = {"read_only": ["search", "lookup", "read"]}
        async with hanging(events, tool, [], SEARCH, SEARCH, **options) as (b, _):
            await b.call("lookup", "x")
            await b.think()  # until the call is overdue
            await b.call("lookup", "y")
            await b.think()
            await b.call("lookup", "z")
            await b.think()
            assert await b.call("search") == "search found a"

    asyncio.run(test())
    assert "hit search" in events.kinds()


def test_a_late_answer_is_logged_and_the_model_thinks_then(events: SpooledEvents) -> None:
    """As of a tool that takes long: the client has waited for it."""

    async def test() -> None:
        received: list[Any] = []
        tool = HangingTool("read")
        options = {"read_only": ["search", "read"], "received": received}
        async with hanging(events, tool, [], SEARCH, **options) as (b, waiting):
            await b.think()
            assert events.kinds() == [], "its end is not known"
            tool.released.set()
            assert await waiting == "read found x"
            async with asyncio.timeout(30):
                while len(received) < 2:  # noqa: ASYNC110 - of another thread
                    await asyncio.sleep(0.005)
            await b.think()
            assert received == [
                [("read", {"query": "x"})],
                ("read", {"result": "read found x"}, False),
            ]
            assert await b.call("search") == "search found a"

    asyncio.run(test())
    assert events.kinds()[:3] == ["read ok", "start search", "hit search"]
    assert events.read()[0]["data"]["result"]["execution_time_ms"] > 200


def test_the_late_answer_of_a_write_voids_the_guesses_under_way(events: SpooledEvents) -> None:
    async def test() -> None:
        tool = HangingTool("write")
        async with hanging(events, tool, SEARCH) as (b, waiting):
            await b.think()
            assert b.tools.ran == [], "it may still change something"
            await b.call("lookup", "x")
            await b.think()
            assert b.tools.ran[-1] == ("search", "a")
            tool.released.set()
            await waiting
            assert await b.call("search") == "search found a"
            assert b.tools.ran.count(("search", "a")) == 2

    asyncio.run(test())
    assert "failed search" in events.kinds()


def test_a_guess_without_an_answer_delays_its_call_only_so_long(events: SpooledEvents) -> None:
    async def test() -> None:
        tool = HangingTool("read")
        guess = [("read", {"query": "a"})]
        options = {"read_only": ["lookup", "read"]}
        async with bench(events, guess, tools=tool.tools, times=TIMES, **options) as b:
            await b.call("lookup", "x")
            await tool.begun.wait()
            waiting = asyncio.ensure_future(b.call("read", "a"))
            async with asyncio.timeout(30):
                while "failed read" not in events.kinds():  # noqa: ASYNC110 - of a file
                    await asyncio.sleep(0.01)
            tool.released.set()
            assert await waiting == "read found a"

    asyncio.run(test())
    assert "read ok" in events.kinds()
