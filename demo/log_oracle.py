"""The demo's own reading of the log: the oracle that the pipeline's numbers are held against.

Written apart from the agents on purpose: it joins and counts from the raw events, in one pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from demo.accounting import JudgedGuess
from headstart.keys import context_paths
from topics.catalogue import EVENTS
from topics.control.messages import is_control
from topics.kafka.reader import read_records


@dataclass
class LogReading:
    """What one tenant's events on the log amount to."""

    ids: list[str] = field(default_factory=list)
    calls: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Outcomes by context path, at every level."""
    judged: list[JudgedGuess] = field(default_factory=list)
    completions: list[tuple[str, int, int]] = field(default_factory=list)
    """(leaf path, offset, emitted at in Unix ms) of every outcome."""


async def read_log(
    kafka: str,
    tenant: str,
    levels: Sequence[str],
    begin: dict[int, int],
    end: dict[int, int],
) -> LogReading:
    """Read the log between two sets of offsets and judge every prediction of `tenant`."""
    reading = LogReading()
    starts: dict[tuple[str, str], dict[str, Any]] = {}
    async for record in read_records(kafka, EVENTS.name, begin, end):
        if is_control(record.headers):
            continue
        decoded = orjson.loads(record.value)
        for event in decoded if isinstance(decoded, list) else [decoded]:
            if event["tenant"] == tenant:
                _take(reading, starts, event, record.offset, levels)
    return reading


def _take(
    reading: LogReading,
    starts: dict[tuple[str, str], dict[str, Any]],
    event: dict[str, Any],
    offset: int,
    levels: Sequence[str],
) -> None:
    reading.ids.append(event["id"])
    task = (event["workflow_id"], event.get("task_id", ""))
    if event["event_type"] == "speculation_start":
        starts[task] = event
    elif event["event_type"] == "task_complete":
        reading.calls += "tool_id" in event  # a reply is no call, but its guess has an outcome
        start = starts.pop(task, None)
        if start is not None:
            _judge(reading, start, event, offset, levels)


def _judge(
    reading: LogReading,
    start: dict[str, Any],
    event: dict[str, Any],
    offset: int,
    levels: Sequence[str],
) -> None:
    context = {**start["data"]["context"], "user_id": start["user_id"]}
    paths = context_paths(start["workflow_type"], context.get, levels)
    reading.outcomes.update(paths)
    reading.completions.append((paths[-1], offset, event["timestamp"]))
    prediction, result = start["data"]["prediction"], event["data"]["result"]
    reading.judged.append(
        JudgedGuess(
            path=paths[-1],
            confidence=start["confidence"],
            threshold=prediction["threshold"],
            speculated=prediction["speculated"],
            correct=_is_hit(prediction, event),
            gain_ms=result["gain_ms"],
            cost_ms=result["cost_ms"],
            at=event["timestamp"],
            workflow=event["workflow_id"],
            not_startable=prediction.get("not_startable", ""),
            assumed=result.get("assumed", ""),
        )
    )


def _is_hit(prediction: dict[str, Any], event: dict[str, Any]) -> bool:
    """Return whether a guess was right (docs/reference/event-contract.md, "Outcome")."""
    declared = event["data"].get("prediction", {}).get("was_correct")
    return bool(prediction["tool_id"] == event["tool_id"] if declared is None else declared)
