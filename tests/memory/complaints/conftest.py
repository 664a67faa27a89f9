"""A database in which tenants of three sizes share one partition of vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from bench.support.made_episodes import EpisodeMaker, MadeEpisode, store_episodes
from memory.embedding.wordllama import WordLlamaEmbedder
from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate
from tests.databases import made_database
from tests.memory.complaints.neighbours import Neighbours, names_of_one_partition

SMALL, LARGE = 150, 1_200


@pytest.fixture(scope="session")
def neighbours(postgres_dsn: str) -> Iterator[Neighbours]:
    with made_database(postgres_dsn) as dsn:
        asyncio.run(migrate(dsn))
        with psycopg.connect(dsn, autocommit=True) as owner:
            part, (small, large, late) = names_of_one_partition(owner, 3)
            owner.execute(f"ALTER TABLE {part} SET (autovacuum_enabled = false)".encode())
        maker = EpisodeMaker()
        made = [maker.of_tenant(small) for _ in range(SMALL)]
        made += [maker.of_tenant(large) for _ in range(LARGE)]
        asyncio.run(_store(dsn, made))
        yield Neighbours(dsn, part, small, large, late, made)


async def _store(dsn: str, made: list[MadeEpisode]) -> None:
    async with await connect_postgres(dsn) as connection:
        await store_episodes(connection, iter(made), WordLlamaEmbedder())
        await connection.execute("ANALYZE episodes, episode_vectors")
