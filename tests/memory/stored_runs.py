"""Runs of events for tests of the memory's tables, stored as the sink stores them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import psycopg

from memory.embedding.interface import Vectors
from sinks.postgres.episodes import EpisodeSink, encode_events

AT = 1_750_000_000_000
DAY_MS = 86_400_000
COMPARED = """
    SELECT tenant, workflow_id, workflow_type, id, user_id, started, ended, outcome, reward,
        confidence, duration_ms, cost_ms, query, query_hash, context, context_hash, first_call,
        tools, calls, concepts, domains, agents_used, insights, reference_ids, response, events
    FROM episodes ORDER BY 1, 2, 3
"""


def event(
    tenant: str, run: str, number: int, kind: str = "task_complete", **fields: Any
) -> dict[str, Any]:
    """Return an event; those of one (tenant, run, number) have one id."""
    draw = random.Random(f"{tenant} {run} {number}")
    return {
        "id": str(UUID(int=draw.getrandbits(128), version=4)),
        "event_type": kind,
        "tenant": tenant,
        "workflow_type": "refund",
        "workflow_id": run,
        "timestamp": AT + number * 1_000,
        "data": {},
        **fields,
    }


def run(tenant: str, name: str, query: str | None = "cancel order", steps: int = 3) -> list[Any]:
    """Return the events of a whole run."""
    said = {"outcome": "success", "context": {"domain": "retail"}}
    if query is not None:
        said["query"] = query
    calls = [
        event(tenant, name, n, tool_id=f"tool-{n}", success=True, user_id="u1",
              data={"arguments": {"id": n}, "context": {"domain": "retail"}})
        for n in range(steps)
    ]  # fmt: skip
    return [*calls, event(tenant, name, steps, "workflow_complete", user_id="u1", data=said)]


async def store(dsn: str, *batches: Iterable[Mapping[str, Any]]) -> None:
    """Store events, each batch in a transaction of its own."""
    async with await EpisodeSink.open(dsn) as sink:
        for events in batches:
            lines = encode_events([orjson.dumps(each) for each in events])
            await sink.store(lines, {}, topic="t", epoch=1, on_refused=_refuse)


async def _refuse(refused: Any) -> None:
    raise AssertionError(refused)


def rows(dsn: str, query: str = COMPARED) -> list[Any]:
    """Return the rows of a query."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type]


class WordEmbedder:
    """Embeds each text by its own hash: fast, and equal texts have equal vectors."""

    dimensions = 16

    def __init__(self, model: str = "words") -> None:
        self.model = model
        self.embedded: list[str] = []

    def embed(self, texts: Any) -> Vectors:
        """Return vectors of length 1."""
        self.embedded += texts
        found = np.zeros((len(texts), self.dimensions), np.float32)
        for place, text in enumerate(texts):
            draw = np.random.default_rng(list(text.encode()))
            found[place] = draw.normal(size=self.dimensions)
            found[place] /= np.linalg.norm(found[place])
        return found
