"""Faults of tools, servers and clients, and that speculating never takes longer."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import Any

import pytest
import timed_pairs
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_bench import READ_ONLY, Tools
from mcp_in_process import bridged, client_of, served
from scripted import EVIDENCE, Script, SpooledEvents, set_up

from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes
from headstart.integrations.mcp_proxy.stream_proxy import StreamProxy
from headstart.prediction.callable_predictor import CallablePredictor
from headstart.prediction.history_view import CALLS, HistoryView
from headstart.prediction.interface import PredictedCall

RUNS, AT_ONCE = int(os.environ.get("FAULT_RUNS", "200")), 10
"""FAULT_RUNS=1000 takes some minutes."""
THINKS_S, RESTS_S = 0.07, 0.03
GUESSES = [[("search", {"query": "a"}), ("lookup", {"query": "wrong"})]] * 3


class Faults:
    """Draws, for each call, whether a tool works, fails, is refused by the server, or hangs.

    `made` has the result of every call that worked.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made: list[str] = []
        self.server = MCPServer("upstream")
        for name in ("search", "lookup"):
            self.server.add_tool(self.tool(name), name=name, annotations=READ_ONLY)

    def tool(self, name: str) -> Any:
        async def made(query: str) -> str:
            drawn = self.random.random()
            await asyncio.sleep(drawn * 0.004)
            if drawn < 0.1:
                raise ValueError(f"{name} has failed")
            if drawn < 0.2:
                raise MCPError(code=-32603, message="the server refuses")
            if drawn > 0.93:
                await asyncio.sleep(60)
            self.made.append(f"{name} {query} {self.random.random()}")
            return self.made[-1]

        return made


def test_runs_with_faults(events: SpooledEvents) -> None:
    """No attempt is left open, and no result is used twice, whatever ends each run."""
    faults = Faults(7)
    setup = set_up(
        events, Script(*GUESSES), read_only=["search", "lookup"], wasted_per_minute=float("inf")
    )
    outcomes: Counter[str] = Counter()
    answers: list[str] = []
    times = ProxyTimes(gap=0.001)

    async def call(client: Any, name: str, query: str) -> None:
        try:
            async with asyncio.timeout(0.1 if faults.random.random() < 0.5 else 0.3):
                result = await client.call_tool(name, {"query": query})
        except (MCPError, TimeoutError) as error:
            outcomes[type(error).__name__] += 1
            return
        outcomes["failed" if result.is_error else "done"] += 1
        if not result.is_error:
            answers.append(result.content[0].text)

    async def one(number: int) -> None:
        proxy = StreamProxy(setup, KnownTools(), times)
        server = faults.server._lowlevel_server
        mode = ("auto", "legacy")[number % 2]
        async with client_of(bridged(proxy, server), mode) as client:
            await client.list_tools()
            await call(client, "lookup", "x")
            await asyncio.sleep(faults.random.random() * 0.02)
            both = [call(client, "search", "a"), call(client, "lookup", "b")]
            await asyncio.gather(*both)
            if number % 3:
                await asyncio.sleep(faults.random.random() * 0.01)
            if number % 5 == 0:
                return  # the client leaves while guesses run
            await call(client, "search", "a")

    async def run() -> None:
        for first in range(0, RUNS, AT_ONCE):
            await asyncio.gather(*(one(first + more) for more in range(AT_ONCE)))
        stats = setup.speculator.stats()
        assert stats["open"] == stats["unlogged"] == 0, stats
        await setup.close()
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - cancelled ones
                await asyncio.sleep(0.01)
        print(stats)

    asyncio.run(run())
    print(outcomes)
    assert set(outcomes) == {"done", "failed", "MCPError", "TimeoutError"}
    assert len(answers) == len(set(answers)), "no result answers two calls"
    assert set(answers) <= set(faults.made)
    check_events(events)


def check_events(events: SpooledEvents) -> None:
    logged = events.read()
    begun = [each["task_id"] for each in logged if each["event_type"] == "speculation_start"]
    ended = [
        (each["workflow_id"], each["task_id"])
        for each in logged
        if "was_correct" in each.get("data", {}).get("prediction", {})
    ]
    assert len(begun) > RUNS, "guesses were made"
    assert len(ended) == len(set(ended)) <= len(begun), "no guess has two outcomes"
    ends = [each["workflow_id"] for each in logged if each["event_type"] == "workflow_complete"]
    assert len(ends) == len(set(ends)) == RUNS, "each run ends once"
    assert set(ends) == {each["workflow_id"] for each in logged}


def test_a_server_that_ends_while_a_guess_is_waited_for(events: SpooledEvents) -> None:
    async def test() -> None:
        tools = Tools()
        tools.add("search", 30.0)
        tools.add("lookup")
        setup = set_up(events, Script([("search", {"query": "a"})]), read_only=["search"])
        proxy = StreamProxy(setup, KnownTools(), ProxyTimes(gap=0.01))
        server: Server[Any] = tools.server._lowlevel_server
        async with client_of(bridged(proxy, server)) as client:
            await client.list_tools()
            await client.call_tool("lookup", {"query": "x"})
            async with asyncio.timeout(30):
                while ("search", "a") not in tools.ran:  # noqa: ASYNC110 - of the server
                    await asyncio.sleep(0.005)
            waiting = asyncio.ensure_future(client.call_tool("search", {"query": "a"}))
            await asyncio.sleep(0.02)
            await proxy._server.aclose()  # what the server reads: it ends
            with pytest.raises(MCPError, match="the MCP server has ended"):
                await waiting
        assert setup.speculator.stats()["open"] == 0

    asyncio.run(test())
    assert events.kinds()[-1] == "end failure"


@timed_pairs.cases
def test_two_parallel_calls_with_one_guess_take_no_longer(
    events: SpooledEvents, guess: str, search_s: float
) -> None:
    tools = Tools()
    tools.add("search", search_s)
    tools.add("lookup", timed_pairs.LOOKUP_S)
    server = tools.server._lowlevel_server
    predictor = CallablePredictor(lambda history: guess_after_lookup(history, guess))
    setup = set_up(events, predictor, read_only=["search"])
    proxy = StreamProxy(setup, KnownTools(), ProxyTimes(gap=0.01))

    async def run(client: Any) -> None:
        await client.call_tool("lookup", {"query": "x"})
        await asyncio.sleep(THINKS_S)
        calls = (("search", "a"), ("lookup", "b"))
        await asyncio.gather(*(client.call_tool(name, {"query": query}) for name, query in calls))
        await asyncio.sleep(RESTS_S)

    async def pairs() -> None:
        async with client_of(bridged(proxy, server)) as ours, client_of(served(server)) as theirs:
            await ours.list_tools()
            await theirs.list_tools()
            waits_s = timed_pairs.LOOKUP_S + THINKS_S + RESTS_S
            await timed_pairs.check_pairs_in_loop(
                lambda: run(ours), lambda: run(theirs), guess, search_s, waits_s=waits_s
            )

    asyncio.run(pairs())
    kinds = Counter(events.kinds())
    assert kinds["hit search" if guess == "a" else "miss search"] > timed_pairs.ROUNDS // 2, kinds


def guess_after_lookup(history: HistoryView, guess: str) -> list[PredictedCall]:
    """Guess a search after a turn that was one lookup."""
    turns = [entry.calls for entry in history if entry.kind == CALLS]
    if turns and [call.tool for call in turns[-1]] == ["lookup"]:
        return [PredictedCall("search", {"query": guess}, 0.9, EVIDENCE)]
    return []
