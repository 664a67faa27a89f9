"""Runs of a made-up shop, with arguments that follow from what was shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def shop_runs(count: int, domain: str = "shop") -> Iterator[dict[str, Any]]:
    """Runs in which a user is looked up, then each of two orders; every task occurs twice."""
    for number in range(count):
        user = f"mia_li_{1000 + number}"
        orders = [f"W{number}{place}77" for place in range(2)]
        yield {
            "domain": domain, "agent_model": "model-a", "task_id": f"{number // 2}",
            "steps": [
                step("get_user", {"user_id": user}, {"id": user, "orders": orders}, turn=1,
                     user_before=[f"I am {user}."], said_before=["Hello!", None]),
                step("get_order", {"order_id": orders[0]}, {"status": "sent"}, turn=2),
                step("get_order", {"order_id": orders[1]}, {"status": "open"}, turn=3),
            ],
            "user_after": ["Thanks, bye."], "said_after": ["All is well.", None],
        }  # fmt: skip


def step(tool: str, args: dict[str, Any], result: object = None, **more: Any) -> dict[str, Any]:
    """One call."""
    return {"tool": tool, "args": args, "result": result, **more}


def write_runs(file: Path, runs: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Path:
    """Write runs as JSON lines; return the file."""
    file.write_text("".join(json.dumps(run) + "\n" for run in runs))
    return file
