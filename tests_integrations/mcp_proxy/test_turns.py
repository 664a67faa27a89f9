"""Turns, answers and safety: client, proxy and server of the SDK in one loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp.server.mcpserver import Context
from mcp_bench import READ_ONLY, SEARCH, Tools, bench
from mcp_in_process import listen_for
from mcp_types import ElicitResult, ToolAnnotations
from pydantic import BaseModel
from scripted import SpooledEvents

from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes

DESTRUCTIVE = ToolAnnotations(read_only_hint=True, destructive_hint=True)


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_a_right_guess_answers(events: SpooledEvents, mode: str) -> None:
    received: list[Any] = []

    async def test() -> None:
        async with bench(events, SEARCH, mode=mode, received=received) as b:
            assert await b.call("lookup", "x") == "lookup found x"
            await b.think()
            assert await b.call("search") == "search found a"
            assert b.tools.ran == [("lookup", "x"), ("search", "a")], "made once"
            await b.think()

    run(test)
    assert events.kinds() == ["lookup ok", "start search", "hit search", "end success"]
    hit = events.read()[2]
    assert hit["data"]["result"]["gain_ms"] > 10
    assert received[:2] == [
        [("lookup", {"query": "x"})],
        ("lookup", {"result": "lookup found x"}, False),
    ]
    assert [("search", {"query": "a"})] in received


def test_a_wrong_guess_is_cancelled_and_leaves_no_trace(events: SpooledEvents, mode: str) -> None:
    async def test() -> None:
        tools = Tools()
        tools.add("search", 5.0)
        tools.add("lookup")
        async with bench(events, SEARCH, tools=tools, mode=mode) as b:
            await b.call("lookup", "x")
            await b.think()
            assert tools.ran[-1] == ("search", "a")
            assert await b.call("lookup", "y") == "lookup found y"
            await b.think()
            assert tools.cancelled == [("search", "a")]

    run(test)
    assert events.kinds() == [
        "lookup ok", "start search", "lookup ok", "miss search", "end success",
    ]  # fmt: skip
    assert events.read()[3]["data"]["result"]["cost_ms"] > 10


def test_parallel_calls_with_one_hit(events: SpooledEvents, mode: str) -> None:
    async def test() -> None:
        async with bench(events, SEARCH, mode=mode) as b:
            await b.call("lookup", "x")
            await b.think()
            answers = await asyncio.gather(b.call("lookup", "y"), b.call("search"))
            assert answers == ["lookup found y", "search found a"]
            await b.think()

    run(test)
    assert sorted(events.kinds()) == [
        "end success", "hit search", "lookup ok", "lookup ok", "start search",
    ]  # fmt: skip


def test_the_second_of_two_hits_comes_after_the_first_was_answered(events: SpooledEvents) -> None:
    """Both guesses are of one turn: the second call comes before the turn's gap is over."""
    both = [*SEARCH, ("lookup", {"query": "b"})]

    async def test() -> None:
        async with bench(events, both) as b:
            await b.call("lookup", "x")
            await b.think()
            b.lengthen_turn()
            assert await b.call("search") == "search found a"
            assert await b.call("lookup", "b") == "lookup found b"
            assert b.tools.ran[1:] == [("search", "a"), ("lookup", "b")]

    run(test)
    assert sorted(events.kinds())[1:3] == ["hit lookup", "hit search"]


def test_a_guess_is_of_the_next_turn_only(events: SpooledEvents) -> None:
    async def test() -> None:
        async with bench(events, SEARCH) as b:
            await b.call("lookup", "x")
            await b.think()
            await b.call("lookup", "y")
            await b.think()
            await b.call("search")
            assert b.tools.ran.count(("search", "a")) == 2
            await b.think()

    run(test)
    assert "hit search" not in events.kinds()


def test_nothing_answers_behind_a_call_that_may_have_changed_something(
    events: SpooledEvents,
) -> None:
    async def test() -> None:
        async with bench(events, SEARCH) as b:
            await b.call("lookup", "x")
            await b.think()
            b.lengthen_turn()
            await b.call("refund", "7")
            await b.call("search")  # within the gap: of the same turn
            assert b.tools.ran[1:] == [("search", "a"), ("refund", "7"), ("search", "a")]

    run(test)
    assert "failed search" in events.kinds()
    assert "search ok" in events.kinds()


def test_a_cancelled_write_stops_the_next_guess(events: SpooledEvents) -> None:
    """The server may still be at work on it."""

    async def test() -> None:
        tools = Tools()
        tools.add("search")
        tools.add("refund", 5.0)
        async with bench(events, SEARCH, SEARCH, tools=tools) as b:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await b.call("refund", "7")
            await b.think()
            assert tools.ran == [("refund", "7")]
            assert tools.cancelled == [("refund", "7")], "the cancellation was passed on"
            await b.call("search", "x")
            await b.think()
            assert tools.ran[-1] == ("search", "a")

    run(test)


def test_a_call_that_waits_for_a_guess_can_be_cancelled(events: SpooledEvents) -> None:
    async def test() -> None:
        tools = Tools()
        tools.add("search", 5.0)
        tools.add("lookup")
        async with bench(events, SEARCH, tools=tools) as b:
            await b.call("lookup", "x")
            await b.think()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await b.call("search")
            await b.think()
            assert tools.ran[1:] == tools.cancelled == [("search", "a")]
            assert await b.call("lookup", "y") == "lookup found y"

    run(test)
    assert "failed search" in events.kinds()


def test_a_reply_discards_guesses_after_the_longest_thinking(events: SpooledEvents) -> None:
    async def test() -> None:
        times = ProxyTimes(gap=0.02, thinking=0.1, idle=0.2)
        received: list[Any] = []
        async with bench(events, SEARCH, times=times, received=received) as b:
            await b.call("lookup", "x")
            await asyncio.sleep(0.18)
            assert received[-1] == [], "the predictor learns that a reply came"
            await asyncio.sleep(0.15)
            assert events.kinds()[-1] == "end success"
            assert await b.call("search") == "search found a"
            assert b.tools.ran.count(("search", "a")) == 2

    run(test)
    kinds = events.kinds()
    assert kinds[:4] == ["lookup ok", "start search", "miss search", "end success"]
    assert kinds[-1] == "end success", "of another run"


def test_an_error_is_never_a_hit(events: SpooledEvents, mode: str) -> None:
    async def test() -> None:
        tools = Tools()
        tools.add("search", error=True)
        tools.add("lookup")
        async with bench(events, SEARCH, tools=tools, mode=mode) as b:
            await b.call("lookup", "x")
            await b.think()
            assert (await b.call("search")).startswith("error: ")
            assert tools.ran.count(("search", "a")) == 2, "made as if nothing had been guessed"
            await b.think()

    run(test)
    assert events.kinds() == [
        "lookup ok", "start search", "failed search", "search error", "end success",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("annotations", "trust", "named", "starts"),
    [
        (READ_ONLY, False, False, False),
        (READ_ONLY, True, False, True),
        (None, True, False, False),
        (None, False, True, True),
        (DESTRUCTIVE, True, True, False),
        (ToolAnnotations(destructive_hint=True), False, True, False),
    ],
    ids=["untrusted", "trusted", "no hint", "named", "destructive", "named, destructive"],
)
def test_which_tools_are_started(
    events: SpooledEvents, annotations: Any, trust: bool, named: bool, starts: bool
) -> None:
    async def test() -> None:
        tools = Tools()
        tools.add("search", annotations=annotations)
        tools.add("lookup")
        read_only = ["search"] if named else []
        async with bench(events, SEARCH, tools=tools, trust=trust, read_only=read_only) as b:
            await b.call("lookup", "x")
            await b.think()
            assert (("search", "a") in tools.ran) == starts

    run(test)


def test_nothing_is_started_before_the_client_has_listed_the_tools(events: SpooledEvents) -> None:
    async def test() -> None:
        async with bench(events, [("unknown", {}), *SEARCH], read_only=["unknown", "search"]) as b:
            b.proxy._tools.changed()
            await b.call("lookup", "x")
            await b.think()
            assert b.tools.ran == [("lookup", "x")]

    run(test)


def test_changed_tools_void_the_guesses_under_way(events: SpooledEvents) -> None:
    async def test() -> None:
        heard: list[str] = []
        client = {"message_handler": listen_for(heard)}
        async with bench(events, SEARCH, client=client, read_only=["search", "change"]) as b:

            async def change(query: str, ctx: Context) -> str:
                await ctx.session.send_tool_list_changed()
                return "changed"

            b.tools.server.add_tool(change, name="change")
            await b.client.list_tools(cache_mode="refresh")
            await b.call("lookup", "x")
            await b.think()
            await b.call("change")
            assert await b.call("search") == "search found a"
            assert b.tools.ran.count(("search", "a")) == 2
            assert "notifications/tools/list_changed" in heard

    run(test)
    assert "hit search" not in events.kinds()


def test_changed_tools_are_not_guessed_until_they_are_listed() -> None:
    tools = KnownTools(trust_annotations=True)
    listing = {"tools": [{"name": "search", "annotations": {"readOnlyHint": True}}]}
    tools.listed(None, listing)
    tools.changed()
    assert tools.hints == {}
    tools.listed(None, listing)
    assert set(tools.hints) == {"search"}


def test_two_tools_of_one_name_are_never_guessed() -> None:
    tools = KnownTools(trust_annotations=True)
    search = {"name": "search", "inputSchema": {}, "annotations": {"readOnlyHint": True}}
    tools.listed(None, {"tools": [search, {"name": "lookup"}], "nextCursor": "2"})
    assert set(tools.hints) == {"search", "lookup"}
    tools.listed({"cursor": "2"}, {"tools": [search]})
    assert set(tools.hints) == {"lookup"}
    tools.listed({}, {"tools": [search]})
    assert set(tools.hints) == {"search"}, "a new listing"


def test_another_meta_makes_another_call(events: SpooledEvents) -> None:
    async def test() -> None:
        async with bench(events, SEARCH, [], SEARCH) as b:
            for tenant, count in (("t1", 1), ("t2", 3)):
                await b.call("lookup", "x", meta={"tenant": "t1"})
                await b.think()
                await b.call("search", meta={"tenant": tenant, "progressToken": tenant})
                assert b.tools.ran.count(("search", "a")) == count
                await b.think()

    run(test)
    kinds = events.kinds()
    assert kinds.count("hit search") == 1
    assert kinds.count("failed search") == 1


def test_a_guess_cannot_ask_the_user(events: SpooledEvents, mode: str) -> None:
    class Answer(BaseModel):
        sure: bool

    asked: list[str] = []

    async def on_elicit(ctx: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"sure": True})

    async def test() -> None:
        tools = Tools()
        tools.add("lookup")

        async def search(query: str, ctx: Context) -> str:
            tools.ran.append(("search", query))
            answer = await ctx.elicit(f"Sure of {query}?", Answer)
            return f"{answer.action} {query}"

        tools.server.add_tool(search, name="search")
        client = {"elicitation_callback": on_elicit}
        guesses = [[("search", {"query": "wrong"})], SEARCH]
        async with bench(events, *guesses, tools=tools, mode=mode, client=client) as b:
            await b.call("lookup", "x")
            await b.think()
            assert asked == []
            if mode == "legacy":  # the server's requests to the client exist there only
                assert await b.call("search") == "accept a"
                assert asked == ["Sure of a?"], "the call's own question was passed on"
                await b.think()
                assert tools.ran.count(("search", "a")) == 1, "not guessed again"

    run(test)


@pytest.mark.parametrize("logged", [True, False])
def test_events_have_no_results_and_arguments_only_if_wanted(
    events: SpooledEvents, logged: bool
) -> None:
    async def test() -> None:
        async with bench(events, SEARCH, log_arguments=logged) as b:
            await b.call("lookup", "secret-x")
            await b.think()

    run(test)
    assert events.calls() == [("lookup", {"query": "secret-x"} if logged else None)]
    assert json.dumps(events.read()).count("secret-x") == logged, "no result"
