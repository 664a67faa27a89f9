"""Prints what the integration adds to a call of a tool without a guess: the median, in µs.

From the root: `PYTHONPATH=tests_integrations/support .venvs/openai-agents/bin/python -P
tests_integrations/openai_agents/overhead.py`
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from agents.testing import function_call
from agents.tool_context import ToolContext
from scripted import Script, SpooledEvents, set_up

from agents import FunctionTool, RunContextWrapper, RunHooks
from headstart.integrations.openai_agents.function_tools import answering
from headstart.integrations.openai_agents.observed_run import ObservedAgentsRun, ObservingHooks

TIMES = 3_000
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


async def nothing(context: ToolContext[Any], arguments: str) -> str:
    return "found"


async def call(hooks: RunHooks[Any], tool: FunctionTool) -> float:
    """Call a tool as the SDK does, with the hooks around it; return the seconds."""
    context = ToolContext(None, tool_name="search", tool_call_id="c1", tool_arguments="{}")
    begun = time.perf_counter()
    await hooks.on_tool_start(context, None, tool)
    result = await tool.on_invoke_tool(context, "{}")
    await hooks.on_tool_end(context, None, tool, result)
    return time.perf_counter() - begun


async def measured(setup: Any) -> list[float]:
    observed = ObservedAgentsRun(setup.run({}), None, guarded=False)
    plain = FunctionTool("search", "Search.", SCHEMA, nothing)
    ours = answering(plain, lambda: observed)
    none, hooks = RunHooks[Any](), ObservingHooks(observed, None)
    took = []
    for _ in range(TIMES):
        observed.model_started(RunContextWrapper(None), None)
        await observed.run.guessed()
        observed.model_answered([function_call("search", {}, call_id="c1")])
        without = await call(none, plain)
        took.append((await call(hooks, ours) - without) * 1e6)
    return took


def main() -> None:
    """Measure with an emitter to a spool on disk."""
    with tempfile.TemporaryDirectory() as folder:
        setup = set_up(SpooledEvents(Path(folder)), Script(), read_only=["search"])
        took = asyncio.run(measured(setup))
        print(f"p50 {median(took):.0f} µs, p95 {quantiles(took, n=20)[-1]:.0f} µs")


if __name__ == "__main__":
    main()
