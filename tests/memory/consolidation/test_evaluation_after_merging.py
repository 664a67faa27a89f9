"""Evaluated before and after a consolidation, the memory is as good: merging loses no run."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.memory.consolidation.repeating import Event, stored
from tests.memory.stored_runs import DAY_MS, event, rows

pytestmark = pytest.mark.integration

TOOLS = ("find", "read", "check", "book", "pay", "close")
QUERIES = tuple(f"please do {what}" for what in ("a refund", "an order", "a booking", "a claim"))
RUNS = 60
MERGED = "SELECT count(*) FROM episodes WHERE state = 'merged'"
UNEQUAL = ("source", "seconds")
"""Of a result, what need not be equal."""


def _runs() -> list[Event]:
    """Return runs of four tasks by three users; one in four takes another course or fails."""
    chance, found = Random(11), list[Event]()
    for number in range(RUNS):
        task, name = chance.randrange(len(QUERIES)), f"run-{number:02}"
        odd = chance.random() < 0.25
        tools = chance.sample(TOOLS, 3) if odd else [TOOLS[task], TOOLS[task + 1], TOOLS[-1]]
        outcome = "failure" if odd and chance.random() < 0.5 else "success"
        user = f"u{chance.randrange(3)}"
        events = [
            event("acme", name, place, tool_id=tool, success=True, user_id=user,
                  data={"arguments": {"item": task}})
            for place, tool in enumerate(tools)
        ]  # fmt: skip
        end = {"outcome": outcome, "query": QUERIES[task]}
        events.append(event("acme", name, len(tools), "workflow_complete", user_id=user, data=end))
        found += [each | {"timestamp": each["timestamp"] + number * DAY_MS} for each in events]
    return found


def _headstart(*command: str) -> Any:
    result = CliRunner().invoke(app, ["memory", *command, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def _evaluated(dsn: str) -> dict[str, Any]:
    command = ("evaluate", "--source", "memory", "--processes", "1", "--postgres", dsn)
    found: dict[str, Any] = _headstart(*command)
    return {name: value for name, value in found.items() if name not in UNEQUAL}


def test_a_consolidation_lowers_no_figure_of_the_evaluation(migrated: str) -> None:
    stored(migrated, *_runs())
    before = _evaluated(migrated)
    assert before["runs"] == RUNS
    _headstart("consolidate", "--postgres", migrated)
    assert rows(migrated, MERGED)[0][0] > RUNS // 3
    assert _evaluated(migrated) == before
