"""Executors that emit at an even pace, as `latency` and `footprint` let them.

Each executor has contexts that no other has: three levels, users of twenty workflow types.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import headstart

FORK: Final = multiprocessing.get_context("fork")
"""Fifty executors, imported once."""
WORKFLOW_TYPES: Final = 20
CONTEXTS: Final = 200


class Load(NamedTuple):
    """Events per second of all executors together, and how many those are."""

    name: str
    events_per_s: int
    executors: int


def context(number: int) -> dict[str, Any]:
    """Return one of the contexts."""
    return {
        "tenant": "bench",
        "workflow_type": f"workflow-{number % WORKFLOW_TYPES}",
        "user_id": f"user-{number}",
        "domain": "retail",
    }


def paced(load: Load, executor: int, begin: float, end: float) -> Iterator[tuple[int, int]]:
    """Yield (context, number of the event), each when it is due for this executor.

    `begin` and `end` are of the monotonic clock. One that comes late catches up.
    """
    own = range(executor, CONTEXTS, load.executors)
    gap = load.executors / load.events_per_s
    due, event = begin + executor * gap / load.executors, 0
    while due < end:
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        yield own[event % len(own)], event
        event += 1
        due += gap


def _data(number: int, *, correct: bool) -> dict[str, Any]:
    return {
        "context": {"domain": context(number)["domain"]},
        "prediction": {"was_correct": correct, "speculated": True},
        "result": {"execution_time_ms": 812.5, "gain_ms": 400.0, "cost_ms": 600.0},
    }


# Made beforehand: what an executor spends on its load is spent on the cores that are measured.
_CONTEXTS: Final = [context(number) for number in range(CONTEXTS)]
_HITS: Final = [_data(number, correct=True) for number in range(CONTEXTS)]
_MISSES: Final = [_data(number, correct=False) for number in range(CONTEXTS)]


def emit(emitter: headstart.Emitter, number: int, event: int) -> None:
    """Emit one judged prediction of a context; every fifth is a miss."""
    of = _CONTEXTS[number]
    emitter.emit(
        event_type="task_complete",
        tenant=of["tenant"],
        workflow_type=of["workflow_type"],
        workflow_id=f"run-{number}-{event // 10}",
        task_id=str(event % 10),
        user_id=of["user_id"],
        tool_id="search",
        success=True,
        confidence=event * 0.618 % 1.0,
        data=(_HITS if event % 5 else _MISSES)[number],
    )
