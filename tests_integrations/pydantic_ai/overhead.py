"""Prints what the integration adds to a call of a tool without a guess, in µs, and to a run, in ms.

From the root: `PYTHONPATH=tests_integrations/support .venvs/pydantic-ai/bin/python
tests_integrations/pydantic_ai/overhead.py`
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from fake_pydantic_agent import agent_of, call, slow_tool, speculating
from pydantic_ai import Tool
from pydantic_ai.capabilities import AbstractCapability
from scripted import SpooledEvents

from headstart.integrations.pydantic_ai import capability
from headstart.integrations.pydantic_ai.capability import SpeculatedToolset

CALLS, TURNS, RUNS = 20, 50, 100
SCRIPT = [[call("search", "a", "c1"), call("lookup", "b", "c2")], "All done."]
TOOK: list[float] = []
"""µs of each call beside that of the tool."""


class TimedToolset(SpeculatedToolset):
    """Notes how long a call took, without the tool's own time."""

    async def call_tool(self, *call: Any) -> Any:
        begun = time.perf_counter()
        result = await super().call_tool(*call)
        whole = time.perf_counter() - begun
        TOOK.append((whole - float(result)) * 1e6)
        return result


async def search(query: str) -> float:
    """Return the seconds that this call takes."""
    begun = time.perf_counter()
    return time.perf_counter() - begun


async def calls(events: SpooledEvents) -> None:
    capability.SpeculatedToolset = TimedToolset  # type: ignore[misc]
    turn = [call("search", "a", f"c{number}") for number in range(CALLS)]
    agent = agent_of(speculating(events, []), [turn, "All done."], Tool(search, sequential=True))
    for _ in range(TURNS):
        await agent.run("Where?")
    capability.SpeculatedToolset = SpeculatedToolset  # type: ignore[misc]
    spread = quantiles(TOOK, n=20)
    print(f"a call: p50 {median(TOOK):.0f} µs, p95 {spread[-1]:.0f} µs")


class Empty(AbstractCapability[Any]):
    """Has the hooks, which do nothing."""

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        return await handler()

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        return await handler(request_context)


async def runs(events: SpooledEvents) -> None:
    tools = [slow_tool("search", 0.0), slow_tool("lookup", 0.0)]
    model = {"thinks_s": 0.0}
    wrong = [[("search", {"query": "wrong"})]] * 2
    agents = {
        "no capability": agent_of(None, SCRIPT, *tools, model=model),
        "an empty capability": agent_of(Empty(), SCRIPT, *tools, model=model),
        "no guess": agent_of(speculating(events, []), SCRIPT, *tools, model=model),
        "wrong guesses": agent_of(speculating(events, *wrong), SCRIPT, *tools, model=model),
    }
    took: dict[str, list[float]] = {name: [] for name in agents}
    for _ in range(RUNS):
        for name, agent in agents.items():
            begun = time.perf_counter()
            await agent.run("Where?")
            took[name].append((time.perf_counter() - begun) * 1e3)
    for name, each in took.items():
        print(f"a run of two calls with {name}: p50 {median(each):.1f} ms")


def main() -> None:
    """Measure, with an emitter to a spool on disk."""
    with tempfile.TemporaryDirectory() as folder:
        events = SpooledEvents(Path(folder))
        asyncio.run(calls(events))
        asyncio.run(runs(events))


if __name__ == "__main__":
    main()
