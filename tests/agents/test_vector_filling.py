"""Missing vectors are filled in also where the model is slow, or refuses one text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agents.memory.assembling import assemble_next
from agents.memory.filling import VectorFilling
from memory.embedding.interface import EmbeddingUnavailable, Vectors
from memory.store.vectors import use_model
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import WordEmbedder, rows, run, store

pytestmark = pytest.mark.integration

EPISODES = 20


class WeakEmbedder(WordEmbedder):
    """Embeds few texts at a time, and some never."""

    def __init__(self, most: int, refused: str = "") -> None:
        super().__init__()
        self.most, self.refused = most, refused

    def embed(self, texts: Sequence[str]) -> Vectors:
        if len(texts) > self.most or self.refused in texts:
            raise EmbeddingUnavailable("not these")
        return super().embed(texts)


async def filled(dsn: str, embedder: WeakEmbedder, steps: int) -> VectorFilling:
    """Store episodes without vectors, and take steps of filling; return it."""
    await store(dsn, *(run("a", str(n), f"query {n}") for n in range(EPISODES)))
    async with target_at(dsn, embedder) as target:
        assert (await assemble_next(target, 500, 0)).without_vector == EPISODES
        filling = VectorFilling(await use_model(target.connection, embedder))
        for _ in range(steps):
            await filling.step(target)
    return filling


def test_a_slow_model_is_given_fewer_texts(migrated: str) -> None:
    filling = asyncio.run(filled(migrated, WeakEmbedder(most=3), 40))
    assert (filling.missing, filling.running) == (0, False)
    assert rows(migrated, "SELECT count(*) FROM episode_vectors") == [(EPISODES,)]


def test_a_refused_text_does_not_keep_others_from_their_vectors(migrated: str) -> None:
    filling = asyncio.run(filled(migrated, WeakEmbedder(EPISODES - 1, "query 7"), 40))
    assert filling.missing == 1
    missing = "SELECT query FROM episodes e WHERE NOT EXISTS (SELECT FROM episode_vectors v"
    assert rows(migrated, f"{missing} WHERE v.episode = e.id)") == [("query 7",)]
