"""In a notebook: cells run in the main thread, on an event loop that is already running.

A cell is run as IPython's asyncio runner does: compiled with top-level `await` allowed, and awaited
where it has one.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from topics.epoch import ensure_topics

pytestmark = pytest.mark.integration

EMITTING = """
import headstart
emitter = headstart.Emitter(kafka, spool=spool, shipper="thread")
for n in range(20):
    emitter.emit(event_type="task_complete", workflow_type="w", workflow_id="w", tenant=tenant, n=n)
emitter.flush(60)
"""
A_WORKFLOW = """
with headstart.workflow(workflow_type="w", tenant=tenant, emitter=emitter) as run:
    run.emit(headstart.task_complete(task_id="1", tool_id="search", success=True))
async with headstart.workflow(workflow_type="w", tenant=tenant, emitter=emitter) as run:
    run.emit(headstart.task_complete(task_id="1", tool_id="search", success=True))
acknowledged = emitter.stats()["acknowledged"]
emitter.close(60)
"""
READING = """
context = {"workflow_type": "w", "tenant": tenant}
with headstart.Thresholds(redis, timeout_s=10) as thresholds:
    plain = [thresholds.get(context).available for _ in range(2)]
async with headstart.AsyncThresholds(redis, timeout_s=10) as thresholds:
    plain += [(await thresholds.get(context)).available for _ in range(2)]
"""


async def notebook(cells: list[str], names: dict[str, Any]) -> dict[str, Any]:
    """Run cells one after the other in one namespace; return it."""
    for cell in cells:
        code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, names)
        else:
            exec(code, names)
        await asyncio.sleep(0)
    return names


def test_cells_emit_and_read(kafka: str, redis_url: str, tenant: str, tmp_path: Path) -> None:
    asyncio.run(ensure_topics(kafka, partitions=4))
    given = {"kafka": kafka, "redis": redis_url, "tenant": tenant, "spool": tmp_path}
    names = asyncio.run(notebook([EMITTING, A_WORKFLOW, READING], given))
    assert names["acknowledged"] == 24  # 20, and two of each workflow
    assert names["plain"] == [True] * 4
