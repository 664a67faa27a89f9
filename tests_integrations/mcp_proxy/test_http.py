"""Clients over HTTP: the proxy and a server of the SDK at ports of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_bench import READ_ONLY, SEARCH, TIMES, Tools
from mcp_http import free_port, http_proxy, listening
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes
from headstart.prediction.predictor import CallPredictor

THINKS_S = 0.15
TRACE = "00-0af7651916cd43dd8448eb211c80319{}-b7ad6b7169203331-01"


def meta(run: int = 1) -> dict[str, Any]:
    return {"traceparent": TRACE.format(run)}


def some_tools(search_s: float = 0.02) -> Tools:
    tools = Tools()
    tools.add("search", search_s, READ_ONLY)
    tools.add("lookup", annotations=READ_ONLY)
    return tools


class Place:
    """The proxy before a server."""

    def __init__(self, url: str, tools: Tools, setup: Any, mode: str) -> None:
        self.url, self.tools, self.setup, self.mode = url, tools, setup, mode

    @asynccontextmanager
    async def client(self, **headers: str) -> AsyncIterator[Client]:
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            transport = streamable_http_client(self.url, http_client=http, max_sse_event_size=None)
            async with Client(transport, mode=self.mode) as client:
                await client.list_tools()
                yield client


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def place(
    events: SpooledEvents,
    *guesses: Any,
    tools: Tools,
    mode: str = "auto",
    predictor: Any = None,
    **options: Any,
) -> AsyncIterator[Place]:
    setup = set_up(events, predictor or Script(*guesses), read_only=["search", "lookup"])
    app = tools.server.streamable_http_app()
    options.setdefault("times", TIMES)
    async with listening(app) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        async with http_proxy(setup, url, **options) as at:
            yield Place(at, tools, setup, mode)
    assert setup.speculator.stats()["open"] == 0


async def call(client: Client, tool: str, query: str, **more: Any) -> str:
    result = await client.call_tool(tool, {"query": query}, **more)
    return result.content[0].text


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of the server
            await asyncio.sleep(0.005)


def test_right_and_wrong_guesses(events: SpooledEvents, mode: str) -> None:
    async def test() -> None:
        tools = some_tools(0.3)
        async with (
            place(events, SEARCH, SEARCH, tools=tools, mode=mode) as p,
            p.client() as client,
        ):
            await call(client, "lookup", "x", meta=meta())
            await until(lambda: ("search", "a") in tools.ran)
            assert await call(client, "search", "a", meta=meta()) == "search found a"
            assert tools.ran.count(("search", "a")) == 1
            await until(lambda: tools.ran.count(("search", "a")) == 2)
            assert await call(client, "lookup", "y", meta=meta()) == "lookup found y"
            await until(lambda: tools.cancelled == [("search", "a")])

    asyncio.run(test())
    assert events.kinds() == [
        "lookup ok", "start search", "hit search", "start search", "lookup ok", "miss search",
        "end success",
    ]  # fmt: skip


def test_calls_of_no_run_pass_without_guesses(events: SpooledEvents) -> None:
    async def test() -> None:
        async with place(events, SEARCH, tools=some_tools()) as p, p.client() as client:
            await call(client, "lookup", "x")
            await call(client, "lookup", "x", meta={"traceparent": "no trace"})
            await asyncio.sleep(THINKS_S)
            assert len(p.tools.ran) == 2

    asyncio.run(test())
    assert events.kinds() == []


@pytest.mark.parametrize("way", ["header", "single client"])
def test_other_names_of_runs(events: SpooledEvents, way: str) -> None:
    options = {"session_header": "X-Chat"} if way == "header" else {"single_client": True}

    async def test() -> None:
        async with (
            place(events, SEARCH, tools=some_tools(), **options) as p,
            p.client(**{"x-chat": "c1"}) as client,
        ):
            await call(client, "lookup", "x")
            await until(lambda: ("search", "a") in p.tools.ran)
            assert await call(client, "search", "a") == "search found a"
            assert p.tools.ran.count(("search", "a")) == 1

    asyncio.run(test())
    assert "hit search" in events.kinds()


def test_runs_and_credentials_never_mix(events: SpooledEvents) -> None:
    """Another run, or the same trace id with other credentials, gets no answer of a guess."""

    async def test() -> None:
        async with (
            place(events, SEARCH, tools=some_tools()) as p,
            p.client(authorization="Bearer one") as one,
            p.client(authorization="Bearer two") as two,
        ):
            await call(one, "lookup", "x", meta=meta())
            await until(lambda: ("search", "a") in p.tools.ran)
            await call(two, "search", "a", meta=meta())
            await call(one, "search", "a", meta=meta(2))
            assert p.tools.ran.count(("search", "a")) >= 3
            await call(one, "search", "a", meta=meta())

    asyncio.run(test())
    kinds = events.kinds()
    assert kinds.count("hit search") == 1
    assert kinds.count("end success") == 3


class GuessesOfUsers:
    """A predictor that keeps what it guessed, for whom."""

    def __init__(self) -> None:
        self._predictor = CallPredictor()
        self.users: list[str] = []
        self.guesses: list[tuple[str, str]] = []

    def run(self, *, agent: str = "", user_id: str = "") -> Any:
        run = self._predictor.run(agent=agent, user_id=user_id)
        self.users.append(user_id)

        guess = run.guess

        def kept(limit: int = 3) -> Any:
            found = guess(limit)
            self.guesses.append((user_id, str(found)))
            return found

        run.guess = kept  # type: ignore[method-assign]
        return run


def test_values_of_one_principal_are_not_guessed_for_another(events: SpooledEvents) -> None:
    """Not in another run either: each principal is a user of the predictor."""
    predictor = GuessesOfUsers()

    async def two_calls(client: Client, run: int, query: str) -> None:
        made = len(predictor.guesses)
        await call(client, "lookup", "x", meta=meta(run))
        await until(lambda: len(predictor.guesses) > made)
        await call(client, "search", query, meta=meta(run))

    async def test() -> None:
        async with (
            place(events, tools=some_tools(), predictor=predictor) as p,
            p.client(authorization="Bearer one") as one,
            p.client(authorization="Bearer two") as two,
            p.client() as none,
        ):
            for run in range(1, 7):
                await two_calls(one, run, "secret of one")
            for client in (two, none):
                await two_calls(client, 7, "another")

    asyncio.run(test())
    first, second, third = dict.fromkeys(predictor.users)
    assert third == "", "no credentials, and no user is configured"
    assert "one" not in f"{first}{second}", "no credentials are passed on"
    of_user = {
        user: [text for each, text in predictor.guesses if each == user] for user in predictor.users
    }
    assert "secret of one" in str(of_user[first])
    assert "secret of one" not in str(of_user[second] + of_user[third])
    assert not any("user_id" in each for each in events.read()), "it is no field of events"


def test_two_clients_of_legacy_sessions_are_two_runs(events: SpooledEvents) -> None:
    async def test() -> None:
        async with place(events, SEARCH, tools=some_tools(), mode="legacy") as p:
            async with p.client() as one, p.client() as two:
                await call(one, "lookup", "x")
                await until(lambda: ("search", "a") in p.tools.ran)
                await call(two, "search", "a")
                assert p.tools.ran.count(("search", "a")) >= 2
            await until(lambda: events.kinds().count("end success") == 2)  # as they have left

    asyncio.run(test())
    assert "hit search" not in events.kinds()


def test_a_call_that_is_cancelled_is_cancelled_at_the_server(
    events: SpooledEvents, mode: str
) -> None:
    async def test() -> None:
        tools = some_tools(10.0)
        async with place(events, tools=tools, mode=mode) as p, p.client() as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await call(client, "search", "x", meta=meta())
            await until(lambda: ("search", "x") in tools.cancelled)

    asyncio.run(test())
    assert events.kinds() == ["search error", "end success"]


def test_a_call_that_waits_for_a_guess_is_cancelled_with_it(
    events: SpooledEvents, mode: str
) -> None:
    async def test() -> None:
        tools = some_tools(10.0)
        async with place(events, SEARCH, tools=tools, mode=mode) as p, p.client() as client:
            await call(client, "lookup", "x", meta=meta())
            await until(lambda: ("search", "a") in tools.ran)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await call(client, "search", "a", meta=meta())
            await until(lambda: ("search", "a") in tools.cancelled)
            assert tools.ran.count(("search", "a")) == 1

    asyncio.run(test())
    assert "failed search" in events.kinds()


def test_a_run_ends_when_it_is_idle(events: SpooledEvents) -> None:
    async def test() -> None:
        times = ProxyTimes(gap=0.01, thinking=0.05, idle=0.1)
        async with (
            place(events, SEARCH, tools=some_tools(), times=times) as p,
            p.client() as client,
        ):
            await call(client, "lookup", "x", meta=meta())
            await until(lambda: "end success" in events.kinds())

    asyncio.run(test())
    assert events.kinds() == ["lookup ok", "start search", "miss search", "end success"]


def test_results_of_megabytes_and_headers_pass(events: SpooledEvents, mode: str) -> None:
    async def test() -> None:
        tools = some_tools()

        async def big(query: str) -> str:
            return "x" * int(query)

        tools.server.add_tool(big, name="big")
        async with place(events, tools=tools, mode=mode) as p, p.client() as client:
            assert len(await call(client, "big", "6000000", meta=meta())) == 6_000_000

    asyncio.run(test())
    assert events.kinds() == ["big ok", "end success"]


def test_what_the_proxy_refuses(events: SpooledEvents) -> None:
    async def test() -> None:
        gone = f"http://127.0.0.1:{free_port()}/mcp"
        setup = set_up(events, Script(), read_only=[])
        async with http_proxy(setup, gone) as url, httpx2.AsyncClient() as http:
            body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "x"}}
            answer = await http.post(url, json=body)
            assert answer.status_code == 502
            assert answer.json()["id"] == 7
            assert (await http.post(url, json=body, headers={"host": "evil"})).status_code == 421
            evil = {"origin": "http://evil"}
            assert (await http.post(url, json=body, headers=evil)).status_code == 403
            assert (await http.post(url, content=b"no JSON")).status_code == 502
            assert (await http.get(url.replace("/mcp", "/other"))).status_code == 404
            with pytest.raises((MCPError, httpx2.HTTPError, ExceptionGroup)):
                async with Client(url) as client:
                    await client.list_tools()

    asyncio.run(test())


def test_headers_that_are_not_ascii_pass_also_with_guesses(events: SpooledEvents) -> None:
    async def test() -> None:
        tools = some_tools()
        async with (
            place(events, SEARCH, tools=tools) as p,
            httpx2.AsyncClient(headers=[(b"x-user", "José".encode())], timeout=30) as http,
        ):
            transport = streamable_http_client(p.url, http_client=http, max_sse_event_size=None)
            async with Client(transport, mode="auto") as client:
                await client.list_tools()
                await call(client, "lookup", "x", meta=meta())
                await until(lambda: ("search", "a") in tools.ran)
                assert await call(client, "search", "a", meta=meta()) == "search found a"

    asyncio.run(test())
    assert "hit search" in events.kinds()
