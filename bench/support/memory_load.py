"""Agent runs for the benchmarks of the memory: tenants of Zipf sizes, queries that repeat a topic.

Each run has about ten events: guesses, their outcomes, and an end, about 560 bytes of JSON each.
"""

from __future__ import annotations

import random
import uuid
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

import orjson

TENANTS: Final = 200
TYPES: Final = 12
TOOLS: Final = tuple(f"tool_{number}" for number in range(24))
TOPICS: Final = 60
_TEXT: Final = """
cancel change refund order flight address payment item size color delivery late wrong broken
return exchange booking seat baggage upgrade invoice receipt account password email phone
subscription renew stop start price discount coupon gift card balance credit debit transfer
status track package shipment warehouse stock available reserve table room night guest
airport city date morning evening urgent please help cannot find missing twice charged
"""
_WORDS: Final = tuple(_TEXT.split())
SPACE_MS: Final = 800
"""Milliseconds from one run's begin to the next's."""


class RunMaker:
    """Makes runs one after the other; the same seed makes the same runs."""

    def __init__(self, runs: int, begin_ms: int, seed: int = 7) -> None:
        self._draw = random.Random(seed)
        self._runs, self._begin = runs, begin_ms
        self._sizes = list(accumulate(1 / rank for rank in range(1, TENANTS + 1)))
        self._topics = [self._draw.sample(_WORDS, 6) for _ in range(TOPICS)]

    def tenant(self) -> int:
        """Draw a tenant, from 0; the first is the largest."""
        return bisect(self._sizes, self._draw.random() * self._sizes[-1])

    def query(self) -> tuple[int, str]:
        """Draw a topic and a query about it."""
        topic = self._draw.randrange(TOPICS)
        words = self._draw.sample(self._topics[topic], 4) + self._draw.sample(_WORDS, 5)
        self._draw.shuffle(words)
        return topic, f"{' '.join(words)} number {self._draw.randrange(10_000)}"

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield the events of each run as JSON."""
        for number in range(self._runs):
            yield self._run(number)

    def _run(self, number: int) -> list[bytes]:
        draw = self._draw
        at = self._begin + number * SPACE_MS
        topic, query = self.query()
        place = {
            "tenant": f"tenant-{self.tenant()}",
            "workflow_type": f"workflow-{topic % TYPES}",
            "workflow_id": f"run-{number:08}",
            "user_id": f"user-{draw.randrange(500)}",
            "agent_id": "support",
        }
        context = {"domain": f"domain-{topic % 7}", "complexity": draw.choice(("low", "high"))}
        events = []
        for step in range(draw.randint(3, 6)):
            tool = TOOLS[(topic + step * draw.choice((1, 1, 1, 2))) % len(TOOLS)]
            events += _step(draw, tool, step, context)
        events.append(_end(draw, query, context))
        return [
            orjson.dumps({"id": _id(draw), **place, **event, "timestamp": at + position * 700})
            for position, event in enumerate(events)
        ]


def _step(
    draw: random.Random, tool: str, step: int, context: dict[str, Any]
) -> list[dict[str, Any]]:
    confidence = round(draw.random(), 4)
    right = draw.random() < confidence
    guess = {
        "event_type": "speculation_start",
        "task_id": f"step-{step}",
        "confidence": confidence,
        "data": {
            "context": context,
            "prediction": {
                "tool_id": tool, "mode": "speculative", "speculated": right,
                "reasoning": "follows the last two calls in most of the earlier runs",
                "evidence": {"tries": draw.randrange(200), "source": "arguments"},
            },
        },
    }  # fmt: skip
    outcome = {
        "event_type": "task_complete",
        "task_id": f"step-{step}",
        "tool_id": tool,
        "success": draw.random() < 0.95,
        "data": {
            "context": context,
            "arguments": {"order_id": f"#W{draw.randrange(10**7)}", "reason": "no longer needed"},
            "prediction": {"tool_id": tool, "was_correct": right, "speculated": right},
            "result": {
                "execution_time_ms": round(draw.random() * 900, 2), "gain_ms": 400.0,
                "cost_ms": 600.0, "output": {"status": "ok", "items": draw.sample(_WORDS, 4)},
            },
        },
    }  # fmt: skip
    return [guess, outcome]


def _end(draw: random.Random, query: str, context: dict[str, Any]) -> dict[str, Any]:
    outcome = draw.choices(("success", "failure", "partial"), (7, 2, 1))[0]
    return {
        "event_type": "workflow_complete",
        "success": outcome == "success",
        "data": {
            "context": context, "outcome": outcome, "query": query,
            "response": f"Done: {' '.join(draw.sample(_WORDS, 12))}.",
            "concepts": draw.sample(_WORDS, 3), "domains": [context["domain"]],
            "result": {"execution_time_ms": round(draw.random() * 20_000, 1)},
        },
    }  # fmt: skip


def _id(draw: random.Random) -> str:
    return str(uuid.UUID(int=draw.getrandbits(128), version=7 if hasattr(uuid, "uuid7") else 4))
