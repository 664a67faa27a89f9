"""Episodes for tests and benchmarks of retrieval, copied straight into their tables.

Tenants have Zipf sizes. A query names a topic and a product among words that many queries share, so
that some queries are nearly equal and most are not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate, islice
from typing import Any, Final, LiteralString, NamedTuple

import numpy as np
from psycopg import AsyncConnection

from memory.embedding.interface import Embedder
from memory.episodes.calls import pack_calls
from memory.episodes.hashes import (
    context_hash,
    episode_id,
    first_call_hash,
    query_hash,
    text_hash,
)
from memory.episodes.record import MadeCall

TYPES: Final = 12
TOPICS: Final = 120
PRODUCTS: Final = 3_000
TOOLS: Final = tuple(f"tool_{number}" for number in range(24))
OUTCOMES: Final = ("success", "failure", "partial", "aborted", None)
DAYS: Final = 60
_MODEL: Final = 1
_BATCH: Final = 2_000
_TEXT: Final = (
    "cancel change refund order flight address payment item size color delivery late wrong broken "
    "return exchange booking seat baggage upgrade invoice receipt account password email phone "
    "subscription renew stop start price discount coupon gift card balance credit debit transfer "
    "status track package shipment warehouse stock available reserve table room night guest "
    "airport city date morning evening urgent please help cannot find missing twice charged "
    "the my a to of for with is was i need want have from in on it and not before after"
)
_WORDS: Final = _TEXT.split()
_SYLLABLES: Final = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti")
_COPY_EPISODES: Final[LiteralString] = """COPY episodes (id, tenant, workflow_type, workflow_id,
    user_id, agent_id, started, ended, outcome, reward, confidence, duration_ms, query, query_hash,
    context, context_hash, first_call, tools, calls, concepts, domains, response, events)
    FROM STDIN (FORMAT BINARY)"""
_EPISODE_TYPES: Final = (
    "int8", "text", "text", "text", "text", "text", "timestamptz", "timestamptz", "text", "float4",
    "float4", "float4", "text", "int8", "jsonb", "int8", "int8", "text[]", "bytea", "text[]",
    "text[]", "text", "int4",
)  # fmt: skip
_COPY_VECTORS: Final[LiteralString] = """COPY episode_vectors (tenant, episode, model,
    workflow_type, outcome, ended, text_hash, v) FROM STDIN (FORMAT BINARY)"""
_VECTOR_TYPES: Final = (
    "text", "int8", "int2", "text", "text", "timestamptz", "int8", "bytea",
)  # fmt: skip


class MadeEpisode(NamedTuple):
    """A row of `episodes`, as far as it is made up here. Times are Unix ms."""

    tenant: str
    workflow_type: str
    workflow_id: str
    query: str
    context: dict[str, str]
    outcome: str | None
    confidence: float
    tools: list[str]
    concepts: list[str]
    ended: int

    @property
    def id(self) -> int:
        """The id that a run's episode has."""
        return episode_id(self.tenant, self.workflow_type, self.workflow_id)


class EpisodeMaker:
    """Makes episodes one after the other; the same seed makes the same ones."""

    def __init__(
        self, seed: int = 7, *, tenants: int = 200, now_ms: int = 1_790_000_000_000
    ) -> None:
        self._draw = random.Random(seed)
        self._now, self._tenants = now_ms, tenants
        self._number = 0
        fixed = random.Random(1)  # the same for all seeds
        self._topics = [fixed.sample(_WORDS, 5) for _ in range(TOPICS)]
        self._products = ["".join(fixed.choices(_SYLLABLES, k=4)) for _ in range(PRODUCTS)]
        self._zipf = list(accumulate(1 / rank for rank in range(1, PRODUCTS + 1)))

    def query(self) -> tuple[int, str]:
        """Draw a topic and a query about it."""
        draw = self._draw
        topic = draw.randrange(TOPICS)
        words = draw.sample(self._topics[topic], 4) + draw.sample(_WORDS, 5)
        words += draw.choices(self._products, cum_weights=self._zipf, k=2)
        draw.shuffle(words)
        return topic, " ".join(words)

    def of_tenant(self, tenant: str) -> MadeEpisode:
        """Make one episode of a tenant."""
        draw, number = self._draw, self._number
        self._number += 1
        topic, query = self.query()
        length = draw.randint(2, 6)
        return MadeEpisode(
            tenant,
            f"workflow-{topic % TYPES}",
            f"run-{number:07}",
            query,
            {"domain": f"domain-{topic % 3}", "complexity": draw.choice(("low", "high")),
             "region": f"region-{draw.randrange(9)}", "channel": draw.choice(("mail", "chat"))},
            draw.choices(OUTCOMES, (70, 15, 8, 5, 2))[0],
            round(draw.random(), 3),
            [TOOLS[(topic + step * draw.choice((1, 1, 2))) % len(TOOLS)] for step in range(length)],
            sorted(draw.sample(self._topics[topic], 3)),
            self._now - draw.randrange(DAYS * 86_400_000),
        )  # fmt: skip

    def made(self, count: int) -> Iterator[MadeEpisode]:
        """Yield about `count` episodes, tenant by tenant, the largest first: `tenant-1` and on."""
        whole = sum(1 / rank for rank in range(1, self._tenants + 1))
        for rank in range(1, self._tenants + 1):
            for _ in range(max(1, round(count / rank / whole))):
                yield self.of_tenant(f"tenant-{rank}")


async def store_episodes(
    connection: AsyncConnection[Any], episodes: Iterator[MadeEpisode], embedder: Embedder
) -> int:
    """Store episodes with their vectors, and return how many; `embedder` becomes the model."""
    await connection.execute(
        "INSERT INTO memory_models (name, dimensions, state) VALUES (%s, %s, 'active')"
        " ON CONFLICT (name) DO NOTHING",
        [embedder.model, embedder.dimensions],
    )
    row = await (await connection.execute(
        "SELECT id FROM memory_models WHERE name = %s", [embedder.model]
    )).fetchone()  # fmt: skip
    model, count = row[0] if row else _MODEL, 0
    while batch := list(islice(episodes, _BATCH)):
        vectors = embedder.embed([each.query for each in batch])
        await _copy(connection, _COPY_EPISODES, _EPISODE_TYPES, map(_episode_row, batch))
        rows = [
            _vector_row(each, vector, model)
            for each, vector in zip(batch, vectors, strict=True)
            if vector.any()
        ]
        await _copy(connection, _COPY_VECTORS, _VECTOR_TYPES, iter(rows))
        count += len(batch)
    return count


async def _copy(
    connection: AsyncConnection[Any], sql: LiteralString, types: Sequence[str], rows: Iterator[Any]
) -> None:
    async with connection.cursor() as cursor, cursor.copy(sql) as copy:
        copy.set_types(types)
        for row in rows:
            await copy.write_row(row)


def _episode_row(made: MadeEpisode) -> tuple[Any, ...]:
    reward = {"success": 1.0, "failure": 0.0, "partial": 0.5, "aborted": 0.0}.get(
        made.outcome or ""
    )
    arguments = f'{{"order_id":"{made.workflow_id}"}}'
    calls = pack_calls([MadeCall(tool, arguments, True) for tool in made.tools])
    return (
        made.id, made.tenant, made.workflow_type, made.workflow_id, f"user-{made.id % 50}",
        "support", _time(made.ended - 9_000), _time(made.ended), made.outcome, reward,
        made.confidence, 9_000.0, made.query, query_hash(made.query),
        made.context, context_hash(made.workflow_type, made.context),
        first_call_hash(made.tools[0], arguments), made.tools,
        calls, made.concepts,
        [made.context["domain"]], f"Done: {made.query}.", 2 * len(made.tools) + 1,
    )  # fmt: skip


def _vector_row(made: MadeEpisode, vector: Any, model: int) -> tuple[Any, ...]:
    head = len(vector).to_bytes(2, "big") + b"\0\0"
    return (
        made.tenant, made.id, model, made.workflow_type, made.outcome, _time(made.ended),
        text_hash(made.query), head + vector.astype(np.dtype(">f2")).tobytes(),
    )  # fmt: skip


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)
