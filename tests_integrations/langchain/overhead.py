"""Prints what the middleware adds to a call of a tool without a guess: the median, in µs.

From the root: `PYTHONPATH=tests_integrations/support .venvs/langchain/bin/python
tests_integrations/langchain/overhead.py`
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from scripted import Script, SpooledEvents, set_up

from headstart.integrations.langchain import SpeculationMiddleware

TIMES = 3_000
DONE = ToolMessage("found", tool_call_id="c1")


def answered(number: int) -> AIMessage:
    call = {"name": "search", "args": {"query": "a"}, "id": "c1", "type": "tool_call"}
    return AIMessage("", id=f"m{number}", tool_calls=[call])


async def in_loop(middleware: SpeculationMiddleware) -> list[float]:
    async def handler(request: Any) -> Any:
        return DONE

    hooks, took = middleware.hooks, []
    for number in range(TIMES):
        asked, answer = [HumanMessage("Where?")], answered(number)

        async def model(answer: AIMessage = answer) -> AIMessage:
            return answer

        await hooks.around_model(asked, [], model, lambda found: found)
        request = SimpleNamespace(
            state={"messages": [*asked, answer]}, tool_call=answer.tool_calls[0], tool=None
        )
        begun = time.perf_counter()
        await handler(request)
        plain = time.perf_counter()
        await middleware.awrap_tool_call(request, handler)
        took.append((time.perf_counter() - plain - (plain - begun)) * 1e6)
    return took


def in_threads(middleware: SpeculationMiddleware) -> list[float]:
    hooks, took = middleware.hooks, []
    for number in range(TIMES):
        asked, answer = [HumanMessage("Where?")], answered(number)
        hooks.around_blocking_model(asked, [], lambda answer=answer: answer, lambda found: found)
        request = SimpleNamespace(
            state={"messages": [*asked, answer]}, tool_call=answer.tool_calls[0], tool=None
        )
        begun = time.perf_counter()
        middleware.wrap_tool_call(request, lambda _: DONE)
        took.append((time.perf_counter() - begun) * 1e6)
    return took


def main() -> None:
    """Measure both forms, each with an emitter to a spool on disk."""
    with tempfile.TemporaryDirectory() as folder:
        events = SpooledEvents(Path(folder))
        middleware = SpeculationMiddleware(setup=set_up(events, Script(), read_only=["search"]))
        for name, took in (
            ("ainvoke", asyncio.run(in_loop(middleware))),
            ("invoke", in_threads(middleware)),
        ):
            print(f"{name}: p50 {median(took):.0f} µs, p95 {quantiles(took, n=20)[-1]:.0f} µs")


if __name__ == "__main__":
    main()
